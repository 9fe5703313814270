package bench.common;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.annotation.JsonProperty;

/** What the driver asks for: the one argument of the process, as JSON. */
public record Job(String bootstrap, String jdbc, String topic, String group, int partitions, int records, String mode,
        Options options) {

    /**
     * What may be set otherwise than the peers do by themselves. Those of other contenders are ignored.
     *
     * @param poll the most records of a poll (Spring) or of a batch (Parallel Consumer); 0: the peer's own
     * @param inFlight threads; 0: the peer's own
     * @param warmup records of the warm-up; null: {@link Child}'s own
     * @param sleepMsMax a record's handler sleeps any time up to that, in milliseconds, before its transaction
     */
    public record Options(int poll, @JsonProperty("in_flight") int inFlight, Integer warmup,
            @JsonProperty("sleep_ms_max") double sleepMsMax) {
    }

    public static Job parse(String[] args) {
        if (args.length != 1) {
            throw new IllegalArgumentException("one argument is needed, a job as JSON; got " + args.length);
        }
        return Json.lenient(Job.class).readValue(args[0]);
    }

    public Job {
        options = options == null ? new Options(0, 0, null, 0) : options;
    }

    /** The number of records that a handler, or a poll, is given at most. */
    public int poll(int standard) {
        return options.poll() > 0 ? options.poll() : standard;
    }

    public int inFlight(int standard) {
        return options.inFlight() > 0 ? options.inFlight() : standard;
    }

    public boolean sleeps() {
        return options.sleepMsMax() > 0;
    }

    /** Sleeps as long as a handler is asked to. */
    public void sleep() {
        if (!sleeps()) {
            return;
        }
        try {
            TimeUnit.NANOSECONDS.sleep((long) (ThreadLocalRandom.current().nextDouble() * options.sleepMsMax() * 1e6));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    Job inGroup(String other) {
        return new Job(bootstrap, jdbc, topic, other, partitions, records, mode, options);
    }
}
