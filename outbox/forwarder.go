package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// errRunning is a programmer's error.
var errRunning = errors.New("forwarder runs already")

const (
	// dbTimeout bounds one statement.
	dbTimeout = 30 * time.Second
	// pause is between two looks at a table that does not hold much.
	pause = 10 * time.Millisecond
	// fewRows is how many rows are read while there are not many.
	fewRows = 32
)

// Forwarder sends what is in the outbox to the brokers: the events of a key in their order, each until all in-sync replicas
// have it, and then deletes it. It is safe for concurrent use. Nothing is open before Run and after it.
//
// Any number may run, in any number of processes: one of them sends, and another one goes on when it dies. Should two send
// at once, events are written twice under their ids, and none before one that comes before it.
type Forwarder struct {
	cfg     Config
	table   table
	lease   lease
	woken   chan struct{}
	running atomic.Bool

	// Run's own
	senders  senders
	topics   topics
	underway underway
	rows     int       // how many are read at most
	began    time.Time // the last look at the table
	full     bool      // it gave as much as was asked for
	failures int       // of the database, in a row
}

// NewForwarder makes a Forwarder of the outbox in pool's database. It uses up to three of pool's connections, each for one
// statement at a time. It speaks to nobody yet.
func NewForwarder(pool *pgxpool.Pool, cfg Config) (*Forwarder, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	f := &Forwarder{cfg: cfg, table: table{pool}, woken: make(chan struct{}, 1)}
	f.lease = lease{turns: f.table, me: uuid.New(), d: cfg.Lease, taken: f.Wake}
	return f, nil
}

// Wake has the table looked at now and not only after Config.PollInterval: for whoever knows that something was
// committed. It never blocks.
func (f *Forwarder) Wake() {
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// Run forwards until ctx ends; what was sent by then is waited for, for Config.Grace, and Run returns nil. What database
// and brokers do meanwhile is no error: they are waited for. An error says that it could not begin: the schema is not this
// build's (migrations.ErrVersion), or the configuration of the Kafka client makes no sense.
func (f *Forwarder) Run(ctx context.Context) error {
	if !f.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer f.running.Store(false)
	if err := migrations.Check(ctx, f.table.pool); errors.Is(err, migrations.ErrVersion) {
		return fmt.Errorf("outbox: %w", err)
	}
	f.topics, f.underway, f.rows = topics{}, underway{packs: map[int64]*row{}}, fewRows
	if err := f.senders.open(f.cfg); err != nil {
		return err
	}
	beside, enough := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { f.lease.keep(beside) })
	others.Go(func() { newWatch(f.cfg, f.table, &f.lease).run(beside) })
	for ctx.Err() == nil {
		f.turn(ctx)
	}
	enough()
	others.Wait()
	f.leave(context.WithoutCancel(ctx))
	return nil
}

// leave waits for what is under way, deletes what is confirmed, and lets another forwarder go on.
func (f *Forwarder) leave(ctx context.Context) {
	grace, cancel := context.WithTimeout(ctx, f.cfg.Grace)
	defer cancel()
	f.await(grace, f.cfg.Grace, f.topics.unanswered)
	f.close()
	f.underway.half()
	_ = f.settle(ctx) // else it is sent again
	leaving, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	f.lease.leave(leaving)
}

// close ends what is under way and takes the results.
func (f *Forwarder) close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		f.senders.close()
	}()
	for {
		select {
		case r := <-f.senders.results:
			f.answered(r)
		case <-closed:
			f.collect()
			return
		}
	}
}

// turn sends once, and waits if there is nothing to send.
func (f *Forwarder) turn(ctx context.Context) {
	if !f.lease.held.Load() {
		clear(f.underway.packs) // another one goes on with them
		wait(ctx, f.cfg.Lease, f.woken)
		return
	}
	sent, err := f.forward(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.trouble(err)
		wait(ctx, backoff.Exponential(firstWait, lastWait, f.failures-1), nil)
	case !sent:
		f.failures = 0
		wait(ctx, f.cfg.PollInterval, f.woken)
	default:
		f.failures = 0
		f.linger(ctx)
	}
}

// linger lets some more events come together, unless many wait already: each look costs database and brokers the same,
// however few it finds.
func (f *Forwarder) linger(ctx context.Context) {
	if !f.full {
		wait(ctx, time.Until(f.began.Add(pause)), nil)
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
	events, err := f.read(ctx)
	if err != nil || len(events) == 0 {
		return false, err
	}
	wave := f.topics.cut(events)
	f.full = f.full || len(wave) < len(events)
	f.senders.send(wave)
	if f.await(ctx, patience, f.topics.awaited); f.topics.awaited() > 0 {
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

// patience is how long an answer may take before the topics that have theirs go on without the others.
const patience = time.Second

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
	if f.topics.of(r.topic).answered(r, time.Now()) {
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

// wait is over after d, when ctx ends or when early has something.
func wait(ctx context.Context, d time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	}
}
