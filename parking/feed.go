package parking

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// sendPatience is how often the running time of a message that nobody takes is begun anew: it is not the handler's.
const sendPatience = time.Second

// feed is one subscription.
type feed struct {
	*Source

	ctx   context.Context // its end is the subscription's
	out   chan *message.Message
	works sync.WaitGroup
}

func (f *feed) run() {
	defer close(f.out)
	defer f.leave(f.ctx)
	defer f.works.Wait()
	for _, g := range f.cfg.Gates {
		defer g.Watch(f.nudge)()
	}
	for failures := 0; f.ctx.Err() == nil; {
		w, err := f.next()
		switch {
		case err != nil:
			failures++
			f.reportFailure(failures, err)
			f.rest(min(f.cfg.Poll<<min(failures, 6), max(f.cfg.Poll, time.Minute)))
		case w == nil:
			failures = 0
			f.rest(f.cfg.Poll)
		default:
			failures = 0
			f.send(w)
		}
	}
}

// reportFailure tells of the first failure in a row: one is a hiccup.
func (f *feed) reportFailure(n int, err error) {
	if n == 3 && f.ctx.Err() == nil {
		f.cfg.Report(record.Report{
			Kind: record.ReportParkingFailed, Route: f.cfg.Route, Partition: -1, Offset: -1, Err: err,
			Hint: "parked records cannot be claimed; they wait in Postgres until they can",
		})
	}
}

// rest waits for d, or until there may be something to do.
func (f *feed) rest(d time.Duration) {
	backoff.WaitUnless(f.ctx, d, f.wake)
}

// next claims what is due, once there is a lane for it. Suspects run when nothing else does, and nothing else beside them.
func (f *feed) next() (*work, error) {
	suspects, ok := f.enter()
	if !ok {
		return nil, nil
	}
	if suspects {
		defer f.claimed()
	}
	// Not under the subscription's end: a claim that is cut off leaves a start behind, which would look like a death.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), finishTimeout)
	defer cancel()
	l, err := f.claim(ctx, suspects)
	var w *work
	if err == nil && l != nil {
		w, err = f.load(ctx, l)
	}
	if w == nil {
		f.returnLane()
	}
	return w, err
}

// claim takes what is due, else, if it may, a suspect. What it has taken when its answer is lost is given back.
func (f *feed) claim(ctx context.Context, suspects bool) (l *Lease, err error) {
	if err := f.pay(ctx); err != nil {
		return nil, err
	}
	for _, suspect := range []bool{false, true} {
		if l != nil || suspect && !suspects {
			break
		}
		c := newClaim(suspect)
		limit := f.cfg.MaxBatch
		if suspect {
			limit = 1
		}
		if l, err = f.store.take(ctx, c, limit); err != nil {
			f.owe(func(ctx context.Context) error { return f.store.release(ctx, c) })
			return nil, err
		}
	}
	return l, nil
}

// enter takes a lane for a new message.
func (f *feed) enter() (alone, ok bool) {
	for _, g := range f.cfg.Gates {
		if g.Shut() {
			return false, false
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lanes == 0 || len(f.queue) > 0 || len(f.Source.works) >= maxHeld || !f.fits(false) {
		return false, false
	}
	f.lanes--
	if alone = f.fits(true); alone {
		f.alone++
	}
	return alone, true
}

// claimed ends a claim that might have brought a suspect: what wants to run again may.
func (f *feed) claimed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alone--
	f.grantLanes()
}

// load makes a message's work of a lease. Nil: nothing of it can be read, and it is given back.
func (f *feed) load(ctx context.Context, l *Lease) (*work, error) {
	suspect := l.Lines[0].Deaths > 0
	most := f.cfg.MaxBatch
	if suspect {
		most = 1
	}
	if err := l.Load(ctx, most, f.cfg.MaxBytes); err != nil {
		f.owe(l.giveBackLate)
		return nil, err
	}
	w := newWork(f.Source, l, suspect)
	var unread []End
	for _, line := range l.Lines {
		if end, ok := w.add(line); !ok {
			unread = append(unread, end)
		}
	}
	if _, err := l.Finish(ctx, unread); err != nil {
		f.owe(l.giveBackLate)
		return nil, err
	}
	if len(w.records) == 0 {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Source.works[w] = struct{}{}
	return w, nil
}

// send hands the message to whoever reads the channel.
func (f *feed) send(w *work) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(f.ctx))
	msg := record.NewMessage(ctx, w.records)
	f.works.Go(func() {
		defer cancel(nil)
		w.keep(f.ctx, msg, cancel)
	})
	tick := time.NewTicker(sendPatience)
	defer tick.Stop()
	for {
		record.BeginAll(w.records)
		select {
		case f.out <- msg:
			return
		case <-tick.C:
		case <-f.ctx.Done():
			w.GiveBack(w.records)
			return
		}
	}
}

// domain names a line for the stack: its records stay in order, whatever their keys are.
func domain(key int64) string { return "p" + strconv.FormatUint(uint64(key), 16) }
