package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// scenario is what goes wrong around the orders, each act at its share of what has been produced, so that it happens
// in the middle of the traffic however many orders there are. Acts never overlap: a member that joins needs the
// database.
type scenario struct {
	demo   *demo
	acts   []act
	due    chan func(context.Context) error
	result chan error
	second *member // of the acts alone
}

// act is one thing that happens when that many of 100 orders are produced.
type act struct {
	percent int
	do      func(context.Context) error
}

func newScenario(ctx context.Context, d *demo) *scenario {
	s := &scenario{demo: d, result: make(chan error, 1)}
	s.acts = []act{{50, s.bank}, {58, s.outage}, {70, s.payments}, {76, s.directory}, {84, s.join}, {95, s.leave}}
	d.payments.BankAway(d.settings.parks())
	s.due = make(chan func(context.Context) error, len(s.acts))
	go func() { s.result <- s.play(ctx) }()
	return s
}

// play performs what is due, one after the other; after a failure only what must be cleaned up.
func (s *scenario) play(ctx context.Context) error {
	var failed error
	for do := range s.due {
		if failed == nil {
			failed = do(ctx)
		}
	}
	return errors.Join(failed, s.leave(ctx))
}

// reached lets the acts happen that are due once n orders are produced.
func (s *scenario) reached(n int) {
	for len(s.acts) > 0 && n*100 >= s.acts[0].percent*s.demo.settings.records {
		s.due <- s.acts[0].do
		s.acts = s.acts[1:]
	}
}

// wait is for the end of all acts that became due. Nothing becomes due after it.
func (s *scenario) wait() error {
	close(s.due)
	return <-s.result
}

// outage takes the database away for a while.
func (s *scenario) outage(ctx context.Context) error {
	d := s.demo
	if d.settings.outage == 0 {
		return nil
	}
	d.progress.note("the database goes away for %s", d.settings.outage)
	back, err := d.world.away(ctx)
	if err != nil {
		return err
	}
	backoff.Wait(ctx, d.settings.outage)
	if err := back(); err != nil {
		return err
	}
	d.progress.note("the database is back")
	return nil
}

// patience is how long the payment service waits for its breaker: few orders take their time to open it.
const patience = 20 * time.Second

// payments takes the payment service away until its breaker has opened, and for a while after.
func (s *scenario) payments(ctx context.Context) error {
	d := s.demo
	if d.settings.payments == 0 {
		return nil
	}
	trips := d.tally.snapshot().trips
	d.progress.note("the payment service goes away")
	d.payments.Away(true)
	defer d.progress.note("the payment service is back")
	defer d.payments.Away(false)
	if !eventually(ctx, patience, func() bool { return d.tally.snapshot().trips > trips }) {
		d.progress.note("its breaker has not opened in %s: there are too few orders", patience)
		return nil
	}
	d.progress.note("its breaker has opened; it stays away for another %s", d.settings.payments)
	backoff.Wait(ctx, d.settings.payments)
	return nil
}

// directory takes the directory away until some have had to do without it.
func (s *scenario) directory(ctx context.Context) error {
	d := s.demo
	before := d.tally.snapshot().degraded
	d.progress.note("the directory goes away: notices are written in substitute languages")
	d.directory.away.Store(true)
	defer d.progress.note("the directory is back")
	defer d.directory.away.Store(false)
	degraded := func(n int) func() bool { return func() bool { return d.tally.snapshot().degraded >= before+n } }
	eventually(ctx, patience, degraded(1))
	eventually(ctx, patience/10, degraded(20))
	return nil
}

// join lets a second member into the group and waits until it has partitions.
func (s *scenario) join(ctx context.Context) error {
	if s.demo.settings.partitions < 2 {
		s.demo.progress.note("no second member: there is one partition, and it would get none")
		return nil
	}
	m, assigned, err := s.demo.join(ctx, "second")
	if err != nil {
		return err
	}
	s.second = m
	s.demo.progress.note("a second member joins the group")
	select {
	case <-assigned:
		s.demo.progress.note("it has partitions")
		return nil
	case <-m.done:
		return errors.Join(errors.New("the second member ended before it had a partition"), m.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave lets the second member go, if it is there.
func (s *scenario) leave(context.Context) error {
	if s.second == nil {
		return nil
	}
	err := s.second.leave()
	s.second = nil
	s.demo.progress.note("the second member has left")
	return err
}

// signalled gives hooks that close the channel when the first partition is assigned.
func signalled(h *record.Hooks) (*record.Hooks, <-chan struct{}) {
	assigned := make(chan struct{})
	var once sync.Once
	claim := h.OnClaim
	h.OnClaim = func(i record.ClaimInfo) {
		claim(i)
		if i.Event == "assigned" {
			once.Do(func() { close(assigned) })
		}
	}
	return h, assigned
}

// eventually waits until something holds, and says whether it does.
func eventually(ctx context.Context, most time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !holds() && ctx.Err() == nil {
		backoff.Wait(ctx, 20*time.Millisecond)
	}
	return holds()
}
