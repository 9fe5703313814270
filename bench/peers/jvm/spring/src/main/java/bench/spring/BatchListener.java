package bench.spring;

import bench.common.Event;
import bench.common.Progress;

import java.util.List;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.kafka.annotation.KafkaListener;

class BatchListener {

    private final Postings postings;
    private final Progress progress;

    BatchListener(Postings postings, Progress progress) {
        this.postings = postings;
        this.progress = progress;
    }

    @KafkaListener(topics = "#{@job.topic()}", groupId = "#{@job.group()}", batch = "true")
    void listen(List<ConsumerRecord<String, byte[]>> records) {
        progress.begin();
        postings.postAll(records.stream()
                .map(record -> Event.decode(record.headers().lastHeader(Event.ID_HEADER).value(), record.value()))
                .toList());
        progress.done(records.size());
    }
}
