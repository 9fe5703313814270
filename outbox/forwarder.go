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

	"github.com/headrace/headrace/migrations"
)

// errRunning is a programmer's error.
var errRunning = errors.New("forwarder runs already")

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

	// What Live and Ready go by.
	stopping             atomic.Bool
	round, brokers, work pulse

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
	f.round.note(nil) // before anybody asks about it
	if !f.running.CompareAndSwap(false, true) {
		return errRunning
	}
	f.stopping.Store(false)
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
	others.Go(func() { f.listen(beside) })
	for ctx.Err() == nil {
		f.round.note(nil)
		f.turn(ctx)
	}
	f.stopping.Store(true)
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
