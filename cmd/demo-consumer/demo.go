package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/idempotency/idemprom"
	"github.com/headrace/headrace/internal/payments"
)

// errUnbalanced is the end of a run whose ledger does not hold.
var errUnbalanced = errors.New("the ledger does not balance")

// demo is one run.
type demo struct {
	settings   settings
	world      *world
	admin      *kadm.Client
	payments   *payments.Service
	dependency *downstream.Dependency // the payment service as the members see it
	transport  *http.Transport        // to what is called
	keys       *idemprom.Metrics      // of its idempotency keys
	billing    *billing
	directory  *directory             // what the notices ask
	lookups    *downstream.Dependency // the directory as the second consumer sees it
	notices    *notices
	reader     *member // the second consumer
	tally      *tally
	progress   *progress
	log        *slog.Logger
	metrics    string       // where they are served
	exhibit    *place       // of some dead record
	behind     atomic.Int64 // the last known backlog, for the live line
}

// run does what the settings ask for and prints the report to out; everything else goes to live.
func run(ctx context.Context, s settings, out, live io.Writer) error {
	if s.json {
		live = io.Discard
	}
	d, err := start(ctx, s, live)
	if err != nil {
		return err
	}
	defer d.close()
	if s.produce {
		return d.produce(ctx, func(int) {})
	}
	if s.audit {
		return d.conclude(ctx, 0, out)
	}
	return d.live(ctx, out, live)
}

func start(ctx context.Context, s settings, live io.Writer) (*demo, error) {
	d := &demo{settings: s, tally: newTally(), log: logger(s)}
	d.progress = newProgress(live, d.tally, d.behind.Load)
	var err error
	if d.world, err = open(ctx, s, d.log); err != nil {
		return nil, err
	}
	if err := d.prepare(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// prepare makes what the run needs in its world.
func (d *demo) prepare(ctx context.Context) error {
	cl, err := kgo.NewClient(d.world.client.Options()...)
	if err != nil {
		return err
	}
	d.admin = kadm.NewClient(cl)
	return errors.Join(d.world.topics(ctx, d.settings), prepare(ctx, d.world.db, d.settings.topic), d.openPayments(ctx))
}

func (d *demo) close() {
	if d.transport != nil {
		d.transport.CloseIdleConnections()
	}
	if d.payments != nil {
		d.payments.Close()
	}
	if d.directory != nil {
		d.directory.close()
	}
	if d.admin != nil {
		d.admin.Close()
	}
	d.world.close()
}

func logger(s settings) *slog.Logger {
	if !s.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.Default()
}

// live consumes until the group has drained the topic, with everything that goes wrong meanwhile, and counts.
func (d *demo) live(ctx context.Context, out, live io.Writer) error {
	began := time.Now()
	drawn := d.progress.start(ctx)
	defer drawn()
	m, assigned, err := d.join(ctx, "first")
	if err != nil {
		return err
	}
	stopServing, err := d.serve(m, live)
	if err != nil {
		return errors.Join(err, m.leave())
	}
	defer stopServing()
	if d.reader, err = d.joinNotices(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, m.leave())
	}
	defer d.reader.end()
	if err := d.guarded(ctx, m, assigned); err != nil {
		return errors.Join(err, d.reader.leave())
	}
	drawn()
	return d.finish(ctx, m, time.Since(began), out)
}

// guarded works for as long as the member lives.
func (d *demo) guarded(ctx context.Context, m *member, assigned <-chan struct{}) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-m.done:
			stop(fmt.Errorf("the consumer ended: %w", m.err))
		case <-d.reader.done:
			stop(fmt.Errorf("the consumer of events ended: %w", d.reader.err))
		case <-ctx.Done():
		}
	}()
	err := d.work(ctx, assigned)
	if err == nil {
		return nil
	}
	if left := m.leave(); !errors.Is(err, left) { // else it is why the work ended
		err = errors.Join(err, left)
	}
	return err
}

// finish counts once the member has left; where all is to stay up, before, and once more at the end.
func (d *demo) finish(ctx context.Context, m *member, took time.Duration, out io.Writer) error {
	if d.settings.stay {
		return d.remain(ctx, m, took, out)
	}
	if err := errors.Join(m.leave(), d.reader.leave()); err != nil {
		return err
	}
	return d.conclude(ctx, took, out)
}

// remain keeps everything up until ctx ends. What is replayed meanwhile is in the second count.
func (d *demo) remain(ctx context.Context, m *member, took time.Duration, out io.Writer) error {
	first := d.conclude(ctx, took, out)
	d.mend()
	d.invite()
	select {
	case <-ctx.Done():
	case <-m.done:
	}
	ctx = context.WithoutCancel(ctx)
	if err := errors.Join(m.leave(), d.tell(ctx), d.reader.leave()); err != nil {
		return err
	}
	return cmp.Or(d.conclude(ctx, took, out), first)
}

// work produces and breaks things unless others do, and waits until all is consumed. It begins when the member has its
// partitions: a database that goes away before would only keep it from starting.
func (d *demo) work(ctx context.Context, assigned <-chan struct{}) error {
	if d.settings.consume {
		return d.drain(ctx)
	}
	select {
	case <-assigned:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	watching, enough := context.WithCancel(ctx)
	defer enough()
	go d.watchBacklog(watching)
	s := newScenario(ctx, d)
	err := d.produce(ctx, s.reached)
	if err := errors.Join(err, s.wait()); err != nil {
		return err
	}
	return d.drain(ctx)
}

func (d *demo) produce(ctx context.Context, sent func(int)) error {
	p, err := newProducer(d.world.client, d.settings)
	if err != nil {
		return err
	}
	return p.run(ctx, d.settings.records, d.settings.pace, sent)
}

// conclude counts, prints, and says by its error whether all holds.
func (d *demo) conclude(ctx context.Context, took time.Duration, out io.Writer) error {
	f, err := d.facts(ctx)
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	r := f.count()
	r.Seed, r.Topic, r.Group = d.settings.seed, d.settings.topic, d.settings.group
	r.Transport, r.Store = d.settings.transport, d.settings.store
	if d.settings.stay {
		r.Stay = d.whereabouts()
	}
	d.exhibit = r.exhibit
	r.took(took, d.tally.snapshot())
	if err := r.print(out, d.settings.json); err != nil {
		return err
	}
	if !r.Balanced {
		return errUnbalanced
	}
	return nil
}
