package bench.common;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;

import org.springframework.jdbc.core.BatchPreparedStatementSetter;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * Inbox row and effect, three ways. Each method runs in the caller's transaction, so that both are committed or neither
 * is. Safe for concurrent use.
 */
public final class Ledger {

    private static final String REMEMBER =
            "insert into stock_inbox (consumer, message_id) values ('post', ?) on conflict do nothing";
    private static final String POST = "update accounts set balance = balance + ? where id = ?";
    private static final String REMEMBER_ALL = """
            insert into stock_inbox (consumer, message_id) select 'post', unnest(?)
            on conflict do nothing returning message_id""";
    private static final String POST_ALL = """
            update accounts set balance = balance + sums.amount
            from (select id, sum(amount) as amount from unnest(?, ?) as postings (id, amount) group by id) as sums
            where accounts.id = sums.id""";

    private final JdbcTemplate jdbc;

    public Ledger(JdbcTemplate jdbc) {
        this.jdbc = jdbc;
    }

    /** One event: two statements. */
    public void post(Event event) {
        if (jdbc.update(REMEMBER, event.id()) == 1) {
            jdbc.update(POST, event.amount(), event.account());
        }
    }

    /** Many events: the same two statements, each as a JDBC batch. */
    public void postBatch(List<Event> events) {
        // Which of the ids are new is in the update counts. They are why reWriteBatchedInserts stays off: an insert
        // that the driver has made of many says "success, number unknown" for each of them.
        int[] inserted = batch(REMEMBER, events, (row, event) -> row.setObject(1, event.id()));
        List<Event> fresh = new ArrayList<>(events.size());
        for (int i = 0; i < inserted.length; i++) {
            if (inserted[i] == 1) {
                fresh.add(events.get(i));
            }
        }
        if (fresh.isEmpty()) {
            return;
        }
        batch(POST, fresh, (row, event) -> {
            row.setLong(1, event.amount());
            row.setInt(2, event.account());
        });
    }

    /** Many events: two statements over sets. */
    public void postSet(List<Event> events) {
        Set<UUID> unseen = new HashSet<>(rememberAll(events));
        List<Event> fresh = new ArrayList<>(events.size());
        for (Event event : events) {
            if (unseen.remove(event.id())) { // the second of two with one id finds it gone
                fresh.add(event);
            }
        }
        if (!fresh.isEmpty()) {
            postAll(fresh);
        }
    }

    private List<UUID> rememberAll(List<Event> events) {
        Object[] ids = events.stream().map(Event::id).toArray();
        return jdbc.query(connection -> {
            PreparedStatement statement = connection.prepareStatement(REMEMBER_ALL);
            statement.setArray(1, connection.createArrayOf("uuid", ids));
            return statement;
        }, (row, n) -> row.getObject(1, UUID.class));
    }

    private void postAll(List<Event> events) {
        Object[] accounts = events.stream().map(Event::account).toArray();
        Object[] amounts = events.stream().map(Event::amount).toArray();
        jdbc.update((Connection connection) -> {
            PreparedStatement statement = connection.prepareStatement(POST_ALL);
            statement.setArray(1, connection.createArrayOf("int4", accounts));
            statement.setArray(2, connection.createArrayOf("int8", amounts));
            return statement;
        });
    }

    private interface Binder {
        void bind(PreparedStatement row, Event event) throws SQLException;
    }

    private int[] batch(String sql, List<Event> events, Binder binder) {
        return jdbc.batchUpdate(sql, new BatchPreparedStatementSetter() {
            @Override
            public void setValues(PreparedStatement row, int i) throws SQLException {
                binder.bind(row, events.get(i));
            }

            @Override
            public int getBatchSize() {
                return events.size();
            }
        });
    }
}
