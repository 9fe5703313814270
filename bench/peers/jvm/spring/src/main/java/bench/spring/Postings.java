package bench.spring;

import bench.common.Event;
import bench.common.Ledger;

import java.util.List;

import org.springframework.transaction.annotation.Transactional;

/** The service behind the listeners: one call, one transaction. */
class Postings {

    private final Ledger ledger;
    private final Mode mode;

    Postings(Ledger ledger, Mode mode) {
        this.ledger = ledger;
        this.mode = mode;
    }

    @Transactional
    public void post(Event event) {
        ledger.post(event);
    }

    @Transactional
    public void postAll(List<Event> events) {
        if (mode == Mode.UNNEST) {
            ledger.postSet(events);
        } else {
            ledger.postBatch(events);
        }
    }
}
