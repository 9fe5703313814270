package bench.spring;

import bench.common.Event;
import bench.common.Job;
import bench.common.Progress;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.kafka.annotation.KafkaListener;

class RecordListener {

    private final Job job;
    private final Postings postings;
    private final Progress progress;

    RecordListener(Job job, Postings postings, Progress progress) {
        this.job = job;
        this.postings = postings;
        this.progress = progress;
    }

    @KafkaListener(topics = "#{@job.topic()}", groupId = "#{@job.group()}")
    void listen(ConsumerRecord<String, byte[]> record) {
        progress.begin();
        job.sleep();
        postings.post(Event.decode(record.headers().lastHeader(Event.ID_HEADER).value(), record.value()));
        progress.done(1);
    }
}
