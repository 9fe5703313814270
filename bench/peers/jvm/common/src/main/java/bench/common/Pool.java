package bench.common;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;

/** Connections: as many as there are threads that use one, all open before the first record. */
final class Pool {

    // Temporary tables come first in the search path: under these, nothing of a warm-up is left in the real ones.
    private static final String SHADOW = """
            create temporary table accounts (id int primary key, balance bigint not null);
            create temporary table stock_inbox (consumer text, message_id uuid, primary key (consumer, message_id))""";

    private Pool() {
    }

    static HikariDataSource open(Job job, int connections, boolean shadowed) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(job.jdbc());
        config.setMaximumPoolSize(connections);
        config.setMinimumIdle(connections);
        config.setAutoCommit(false); // every use is a transaction
        if (shadowed) {
            config.setConnectionInitSql(SHADOW);
        }
        HikariDataSource pool = new HikariDataSource(config);
        Wait.until("the pool has its connections",
                () -> pool.getHikariPoolMXBean().getTotalConnections() >= connections);
        return pool;
    }
}
