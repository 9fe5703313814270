package bench.common;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Counts what is handled. Safe for concurrent use. */
public final class Progress {

    private final int records;
    private final boolean said;
    private final AtomicBoolean began = new AtomicBoolean();
    private final AtomicLong seen = new AtomicLong();

    private Progress(int records, boolean said) {
        this.records = records;
        this.said = said;
    }

    static Progress silent() {
        return new Progress(0, false);
    }

    /** Tells the driver: FIRST when it begins, SEEN twenty times a second at most, and when that many records are done. */
    static Progress said(int records) {
        return new Progress(records, true);
    }

    /** A handler begins. */
    public void begin() {
        if (began.get() || !began.compareAndSet(false, true) || !said) {
            return;
        }
        System.out.println("FIRST " + ChronoUnit.NANOS.between(Instant.EPOCH, Instant.now()));
        Thread teller = new Thread(this::tell, "progress");
        teller.setDaemon(true);
        teller.start();
    }

    /** So many records' transactions are committed. */
    public void done(int n) {
        long now = seen.addAndGet(n);
        if (said && now >= records && now - n < records) {
            System.out.println("SEEN " + now);
        }
    }

    long seen() {
        return seen.get();
    }

    private void tell() {
        long told = 0;
        while (true) {
            long now = seen();
            if (now != told) {
                System.out.println("SEEN " + now);
                told = now;
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException e) {
                return;
            }
        }
    }
}
