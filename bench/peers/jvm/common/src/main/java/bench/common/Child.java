package bench.common;

import java.io.IOException;
import java.time.Duration;

import javax.sql.DataSource;

import com.zaxxer.hikari.HikariDataSource;

/** The life of a peer's process, as the driver expects it. */
public final class Child {

    private static final int WARMUP = 20_000;
    private static final Duration LONGEST_WARMUP = Duration.ofSeconds(10);

    /** A consumer. */
    public interface Peer extends AutoCloseable {
        /** Begins to consume. All that takes long and is no consuming is done before. */
        void start();

        @Override
        void close();
    }

    /** How a peer is made. */
    public interface Maker {
        /** How many of the peer's threads use the database at once. */
        int connections(Job job);

        /** A consumer that is ready to start. */
        Peer make(Job job, DataSource database, Progress progress);
    }

    private Child() {
    }

    /** Consumes until the input ends, and ends the process. */
    public static void run(String[] args, Maker maker) {
        try {
            Job job = Job.parse(args);
            warmUp(job, maker);
            Progress progress = Progress.said(job.records());
            try (HikariDataSource database = Pool.open(job, maker.connections(job), false);
                    Peer peer = maker.make(job, database, progress)) {
                System.out.println("READY");
                peer.start();
                awaitEnd();
            }
            System.exit(0);
        } catch (Exception e) {
            fail(e);
        }
    }

    /**
     * Lets the JIT compile what will be measured: another group reads the same topic, into temporary tables. A consumer
     * in production runs for days, a benchmark for seconds.
     */
    private static void warmUp(Job job, Maker maker) {
        Integer asked = job.options().warmup();
        int records = Math.min(job.records(), asked == null ? WARMUP : asked);
        if (records == 0) {
            return;
        }
        Job warm = job.inGroup(job.group() + "-warm-up");
        Progress progress = Progress.silent();
        try (HikariDataSource database = Pool.open(warm, maker.connections(warm), true);
                Peer peer = maker.make(warm, database, progress)) {
            peer.start();
            Wait.atMost(LONGEST_WARMUP, () -> progress.seen() >= records);
        }
    }

    private static void awaitEnd() throws IOException {
        while (System.in.read() >= 0) {
            // nothing is ever said to us
        }
    }

    /** Ends the process at once, with the reason on standard error: a benchmark of a consumer that fails is none. */
    public static void fail(Throwable reason) {
        reason.printStackTrace();
        Runtime.getRuntime().halt(1);
    }
}
