package bench.common;

import java.time.Duration;
import java.util.function.BooleanSupplier;

/** Waiting for what nobody signals. */
public final class Wait {

    private static final Duration LONG = Duration.ofMinutes(1);

    private Wait() {
    }

    /** Returns when done says so, and fails after a minute. */
    public static void until(String what, BooleanSupplier done) {
        if (!atMost(LONG, done)) {
            throw new IllegalStateException("waited a minute and it is not so: " + what);
        }
    }

    /** Returns when done says so, or false when the time is over. */
    static boolean atMost(Duration time, BooleanSupplier done) {
        long end = System.nanoTime() + time.toNanos();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) {
                return false;
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
        return true;
    }
}
