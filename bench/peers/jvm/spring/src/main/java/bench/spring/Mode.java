package bench.spring;

import org.springframework.kafka.listener.ContainerProperties.AckMode;

enum Mode {
    /** A transaction and an offset commit for each record. */
    RECORD("spring-record", AckMode.RECORD, RecordListener.class),
    /** A transaction for each record, an offset commit for each poll: what Spring does unless told otherwise. */
    RECORD_ACK_BATCH("spring-record-ack-batch", AckMode.BATCH, RecordListener.class),
    /** A transaction for each poll, two JDBC batches. */
    BATCH("spring-batch", AckMode.BATCH, BatchListener.class),
    /** A transaction for each poll, two statements over sets. */
    UNNEST("spring-unnest", AckMode.BATCH, BatchListener.class);

    final String mode;
    final AckMode ack;
    final Class<?> listener;

    Mode(String mode, AckMode ack, Class<?> listener) {
        this.mode = mode;
        this.ack = ack;
        this.listener = listener;
    }

    static Mode named(String name) {
        for (Mode mode : values()) {
            if (mode.mode.equals(name)) {
                return mode;
            }
        }
        throw new IllegalArgumentException("no mode \"" + name + "\" of Spring's");
    }
}
