package bench.parallel;

import bench.common.Job;

/** What a call of the user's function gets, and how it goes to the database. The sizes were tuned, see the README. */
enum Mode {
    /** A transaction for each record. */
    RECORD("parallel-record", 16, 1),
    /** A transaction for each batch, two JDBC batches. */
    BATCH("parallel-batch", 8, 500),
    /** A transaction for each batch, two statements over sets. */
    UNNEST("parallel-unnest", 8, 500);

    /** Threads that sleep take no processor; it is advised to have many more of them than cores. */
    private static final int SLEEPERS = 100;

    final String mode;
    final int concurrency;
    final int batch;

    Mode(String mode, int concurrency, int batch) {
        this.mode = mode;
        this.concurrency = concurrency;
        this.batch = batch;
    }

    /** How many threads call the user's function. */
    int threads(Job job) {
        return job.inFlight(job.sleeps() ? SLEEPERS : concurrency);
    }

    static Mode named(String name) {
        for (Mode mode : values()) {
            if (mode.mode.equals(name)) {
                return mode;
            }
        }
        throw new IllegalArgumentException("no mode \"" + name + "\" of Parallel Consumer's");
    }
}
