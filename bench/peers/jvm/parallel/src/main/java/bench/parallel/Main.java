package bench.parallel;

import bench.common.Child;
import bench.common.Job;
import bench.common.Progress;

import javax.sql.DataSource;

/** Confluent's Parallel Consumer. */
public final class Main implements Child.Maker {

    private static final int MOST_CONNECTIONS = 32;

    public static void main(String[] args) {
        Child.run(args, new Main());
    }

    /** As many connections as threads, unless the threads are many because they wait for something else. */
    @Override
    public int connections(Job job) {
        return Math.min(Mode.named(job.mode()).threads(job), MOST_CONNECTIONS);
    }

    @Override
    public Child.Peer make(Job job, DataSource database, Progress progress) {
        return new Consumer(job, database, progress);
    }
}
