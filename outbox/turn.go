package outbox

import (
	"context"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

const (
	// dbTimeout bounds one statement.
	dbTimeout = 30 * time.Second
	// pause is between two looks at a table that does not hold much.
	pause = 10 * time.Millisecond
	// fewRows is how many rows are read while there are not many.
	fewRows = 32
	// patience is how long an answer may take before the topics that have theirs go on without the others.
	patience = time.Second
	// coldPatience is how much longer that may be for a client that has had none yet.
	coldPatience = 5 * time.Second
)

// turn sends once, and waits if there is nothing to send.
func (f *Forwarder) turn(ctx context.Context) {
	if !f.lease.held.Load() {
		clear(f.underway.packs) // another one goes on with them
		backoff.WaitUnless(ctx, f.cfg.Lease, f.woken)
		return
	}
	sent, err := f.forward(ctx)
	f.work.note(err)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.trouble(err)
		backoff.Wait(ctx, backoff.Exponential(firstWait, lastWait, f.failures-1))
	case !sent:
		f.failures = 0
		backoff.WaitUnless(ctx, f.cfg.PollInterval, f.woken)
	default:
		f.failures = 0
		f.linger(ctx)
	}
}

// linger lets some more events come together, unless many wait already: each look costs database and brokers the same,
// however few it finds.
func (f *Forwarder) linger(ctx context.Context) {
	if !f.full {
		backoff.Wait(ctx, time.Until(f.began.Add(pause)))
	}
}

func (f *Forwarder) trouble(err error) {
	if f.failures++; f.failures == 1 {
		f.cfg.Hooks.Report(record.Report{
			Kind: record.ReportOutboxUnreadable, Err: err, Hint: "it is tried again until the database answers; the events are safe in it",
		})
	}
}

// forward sends the first events and deletes those that are confirmed. It is false if there is nothing to send now.
func (f *Forwarder) forward(ctx context.Context) (bool, error) {
	f.collect()
	// Confirmed -> the database is away -> it is back: without this what was sent would be read, and sent, again.
	if err := f.settle(ctx); err != nil {
		return false, err
	}
	if err := f.senders.mend(f.cfg); err != nil {
		return false, err
	}
	events, err := f.read(ctx)
	if err != nil || len(events) == 0 {
		return false, err
	}
	wave := f.topics.cut(events, f.senders.nth)
	f.full = f.full || len(wave) < len(events)
	f.senders.send(wave)
	if f.awaitWave(ctx); f.topics.awaited() > 0 {
		if err := f.senders.replace(f.cfg); err != nil {
			return false, err
		}
		f.topics.giveUp()
	}
	return true, f.settle(ctx)
}

// read gives the first events. It reads as many rows as gave enough the last time, or twice as many: how many events a
// row has is not known before.
func (f *Forwarder) read(ctx context.Context) ([]*event, error) {
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	f.began = time.Now()
	rows, err := f.table.read(ctx, f.topics.waiting(f.began), f.rows, f.cfg.MaxBatch)
	if err != nil {
		return nil, err
	}
	events := f.underway.events(rows)
	f.full = len(rows) == f.rows || len(events) >= f.cfg.MaxBatch
	f.rows = min(max(2*len(rows), fewRows), f.cfg.MaxBatch)
	return events, nil
}

// awaitWave waits for those topics that answer within patience. A sender that is new has to find the brokers, log in and get
// its id first: one that was replaced for the time that takes would be followed by another, with one event of each topic each.
func (f *Forwarder) awaitWave(ctx context.Context) {
	f.await(ctx, patience, f.topics.awaited)
	if f.topics.awaited() == 0 || f.senders.proven {
		return
	}
	f.await(ctx, coldPatience, func() int {
		if f.senders.proven {
			return 0
		}
		return f.topics.awaited()
	})
	f.await(ctx, patience, f.topics.awaited)
}

// await takes results until no topic is open any more, for d at most.
func (f *Forwarder) await(ctx context.Context, d time.Duration, open func() int) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for open() > 0 {
		select {
		case r := <-f.senders.results:
			f.answered(r)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// collect takes the results that are there.
func (f *Forwarder) collect() {
	for {
		select {
		case r := <-f.senders.results:
			f.answered(r)
		default:
			return
		}
	}
}

// settle deletes what is confirmed, also when Run is to end: else it would be sent again. Packs of which not all is going to
// be are taken apart.
func (f *Forwarder) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
	defer cancel()
	u := &f.underway
	if len(u.deleted) > 0 {
		if err := f.table.delete(ctx, u.deleted); err != nil {
			return err
		}
		u.forget()
	}
	for _, r := range u.apart {
		if err := f.table.split(ctx, r); err != nil {
			return err
		}
		delete(u.packs, r.id)
	}
	u.apart = nil
	return nil
}

// answered takes note of a result.
func (f *Forwarder) answered(r result) {
	for _, e := range r.confirmed {
		f.underway.confirmed(e)
	}
	if len(r.confirmed) > 0 {
		f.brokers.note(nil)
	}
	t := f.topics.of(r.topic)
	if t.by == f.senders.nth { // what one before it was answered says nothing of the one in use
		f.senders.note(r)
	}
	if t.answered(r, time.Now()) {
		f.blocked(r)
	}
	if f.cfg.Hooks.OnForward != nil {
		f.cfg.Hooks.OnForward(record.ForwardInfo{Confirmed: len(r.confirmed), Failed: r.sent - len(r.confirmed)})
	}
}

func (f *Forwarder) blocked(r result) {
	if len(r.failed.of.events) > 1 {
		f.underway.apart = append(f.underway.apart, r.failed.of)
	}
	f.cfg.Hooks.Report(record.Report{
		Kind: record.ReportOutboxBlocked, Topic: r.topic, Partition: -1, Offset: -1, Err: r.err,
		Hint: "the topic's events wait in headrace.outbox, in order, and are tried again; see that the brokers are up, and that the topic " +
			"exists, takes records of this size and may be written to",
	})
}
