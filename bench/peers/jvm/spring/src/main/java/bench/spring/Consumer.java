package bench.spring;

import bench.common.Child;
import bench.common.Wait;

import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.kafka.config.KafkaListenerEndpointRegistry;
import org.springframework.kafka.listener.MessageListenerContainer;

/**
 * The listener's container. It joins its group paused, and starts by being resumed: each of its threads is a member of
 * the group, and on a broker that does not delay a new group's first rebalance each would interrupt those before it.
 */
final class Consumer implements Child.Peer {

    private final ConfigurableApplicationContext context;
    private final MessageListenerContainer container;

    Consumer(ConfigurableApplicationContext context, int partitions) {
        this.context = context;
        container = context.getBean(KafkaListenerEndpointRegistry.class).getListenerContainers().iterator().next();
        container.pause();
        container.start();
        Wait.until("every partition is assigned", () -> assigned() == partitions);
    }

    private int assigned() {
        var partitions = container.getAssignedPartitions();
        return partitions == null ? 0 : partitions.size();
    }

    @Override
    public void start() {
        container.resume();
    }

    @Override
    public void close() {
        container.stop();
        context.close();
    }
}
