package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/backoff"
)

var (
	errNotStarted = errors.New("not started")
	errStopping   = errors.New("stopping")
)

const (
	// heardWithin is how old the last answer of a database or a broker may be: room for some that one dead broker of
	// several has cost.
	heardWithin = 30 * time.Second
	// askEvery is between two questions to the brokers, and how long each may take.
	askEvery = 5 * time.Second
	// hungAfter is far longer than a turn lasts, whose waits are all bounded: two minutes if the database takes its time. On
	// top comes what a turn waits for by its configuration.
	hungAfter = 5 * time.Minute
)

// Live says whether the process should go on: nil while it does, and outside of Run. Brokers and a database that are away
// are no reason to be restarted; a forwarder that does not come round any more is. Safe for concurrent use.
func (f *Forwarder) Live() error {
	if !f.running.Load() || f.stopping.Load() {
		return nil
	}
	if err := f.round.silent("the forwarder has", hungAfter+max(f.cfg.PollInterval, f.cfg.Lease)); err != nil {
		return fmt.Errorf("%w: it hangs, and nobody sends as long as it keeps others from it; restart it", err)
	}
	return nil
}

// Ready says whether events are sent, or would be if it were this forwarder's turn: nil while it is, or may be once another
// one ends, and the database and a broker have answered in the last 30 s, or Config.Lease if that is longer. A topic that
// takes nothing is no reason: the others go on. Safe for concurrent use.
func (f *Forwarder) Ready() error {
	switch {
	case !f.running.Load():
		return errNotStarted
	case f.stopping.Load():
		return errStopping
	}
	within := max(heardWithin, f.cfg.Lease)
	errs := []error{
		f.lease.asked.silent("the database, asked whose turn it is, has", within),
		f.brokers.silent("the brokers have", heardWithin),
	}
	if f.lease.held.Load() {
		errs = append(errs, f.work.failing("the database, asked for events, has", within))
	}
	return errors.Join(errs...)
}

// listen asks the brokers until ctx ends: a forwarder that has nothing to send, or whose turn it is not, would not know that
// they are gone.
func (f *Forwarder) listen(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		f.brokers.note(f.ask(ctx, n))
		backoff.Wait(ctx, askEvery)
	}
}

func (f *Forwarder) ask(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	return f.senders.current.Load().ask(ctx, n)
}
