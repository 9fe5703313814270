package bench.parallel;

import bench.common.Child;
import bench.common.Event;
import bench.common.Job;
import bench.common.Ledger;
import bench.common.Progress;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import io.confluent.parallelconsumer.PollContext;
import io.confluent.parallelconsumer.RecordContext;

import java.util.List;
import java.util.Map;

import javax.sql.DataSource;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.support.JdbcTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

final class Consumer implements Child.Peer {

    private static final int ATTEMPTS = 10;

    private final Job job;
    private final Mode mode;
    private final Progress progress;
    private final Ledger ledger;
    private final TransactionTemplate transaction;
    private final ParallelStreamProcessor<String, byte[]> processor;

    Consumer(Job job, DataSource database, Progress progress) {
        this.job = job;
        this.progress = progress;
        mode = Mode.named(job.mode());
        ledger = new Ledger(new JdbcTemplate(database));
        transaction = new TransactionTemplate(new JdbcTransactionManager(database));
        processor = ParallelStreamProcessor.createEosStreamProcessor(
                ParallelConsumerOptions.<String, byte[]>builder()
                        .consumer(client(job))
                        .ordering(ProcessingOrder.KEY)
                        .maxConcurrency(mode.threads(job))
                        .batchSize(mode == Mode.RECORD ? 1 : job.poll(mode.batch))
                        .build());
    }

    private static KafkaConsumer<String, byte[]> client(Job job) {
        Map<String, Object> properties = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, job.bootstrap(),
                ConsumerConfig.GROUP_ID_CONFIG, job.group(),
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new ByteArrayDeserializer());
    }

    @Override
    public void start() {
        processor.subscribe(List.of(job.topic()));
        processor.poll(this::handle);
    }

    /** A failed call is made again, by Parallel Consumer; a record that fails again and again ends the run. */
    private void handle(PollContext<String, byte[]> context) {
        progress.begin();
        job.sleep();
        try {
            List<Event> events = context.stream().map(Consumer::event).toList();
            transaction.executeWithoutResult(status -> post(events));
            progress.done(events.size());
        } catch (RuntimeException e) {
            if (context.stream().anyMatch(record -> record.getNumberOfFailedAttempts() >= ATTEMPTS - 1)) {
                Child.fail(e);
            }
            throw e;
        }
    }

    private void post(List<Event> events) {
        switch (mode) {
            case RECORD -> ledger.post(events.get(0));
            case BATCH -> ledger.postBatch(events);
            case UNNEST -> ledger.postSet(events);
        }
    }

    private static Event event(RecordContext<String, byte[]> record) {
        return Event.decode(record.headers().lastHeader(Event.ID_HEADER).value(), record.value());
    }

    @Override
    public void close() {
        processor.closeDontDrainFirst();
    }
}
