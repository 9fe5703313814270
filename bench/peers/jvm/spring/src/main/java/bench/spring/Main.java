package bench.spring;

import bench.common.Child;
import bench.common.Job;
import bench.common.Progress;

import javax.sql.DataSource;

import org.springframework.context.annotation.AnnotationConfigApplicationContext;

/** Spring for Apache Kafka. */
public final class Main implements Child.Maker {

    private static final int MOST_THREADS = 16;

    public static void main(String[] args) {
        Child.run(args, new Main());
    }

    /** A thread for each partition: more would be idle. */
    @Override
    public int connections(Job job) {
        return job.inFlight(Math.min(job.partitions(), MOST_THREADS));
    }

    @Override
    public Child.Peer make(Job job, DataSource database, Progress progress) {
        Mode mode = Mode.named(job.mode());
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
        context.registerBean("job", Job.class, () -> job);
        context.registerBean("mode", Mode.class, () -> mode);
        context.registerBean("progress", Progress.class, () -> progress);
        context.registerBean("concurrency", Integer.class, () -> connections(job));
        context.registerBean("dataSource", DataSource.class, () -> database, bean -> bean.setDestroyMethodName(""));
        context.register(Config.class, Postings.class, mode.listener);
        context.refresh();
        return new Consumer(context, job.partitions());
    }
}
