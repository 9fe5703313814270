package bench.spring;

import bench.common.Child;
import bench.common.Job;
import bench.common.Ledger;

import java.util.HashMap;
import java.util.Map;

import javax.sql.DataSource;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.support.JdbcTransactionManager;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.util.backoff.FixedBackOff;

@Configuration
@EnableKafka
@EnableTransactionManagement
class Config {

    @Bean
    ConsumerFactory<String, byte[]> consumerFactory(Job job) {
        Map<String, Object> properties = new HashMap<>();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, job.bootstrap());
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        properties.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, job.poll(ConsumerConfig.DEFAULT_MAX_POLL_RECORDS));
        return new DefaultKafkaConsumerFactory<>(properties, new StringDeserializer(), new ByteArrayDeserializer());
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, byte[]> kafkaListenerContainerFactory(
            ConsumerFactory<String, byte[]> consumers, Mode mode, Integer concurrency) {
        var factory = new ConcurrentKafkaListenerContainerFactory<String, byte[]>();
        factory.setConsumerFactory(consumers);
        factory.setConcurrency(concurrency);
        factory.setAutoStartup(false);
        factory.getContainerProperties().setAckMode(mode.ack);
        // Spring's own number of attempts; instead of skipping the record, the run ends.
        factory.setCommonErrorHandler(
                new DefaultErrorHandler((record, failure) -> Child.fail(failure), new FixedBackOff(0, 9)));
        return factory;
    }

    @Bean
    PlatformTransactionManager transactionManager(DataSource database) {
        return new JdbcTransactionManager(database);
    }

    @Bean
    Ledger ledger(DataSource database) {
        return new Ledger(new JdbcTemplate(database));
    }
}
