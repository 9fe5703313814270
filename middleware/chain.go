package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// chain is a record that did not succeed, the head, with those that must stay behind it: all of one domain, in order.
// It belongs to one goroutine.
//
//	      ┌────────────── again: the whole chain runs, in order ◄──────────────┐
//	      ▼                                                                    │
//	head failed ─► decide ─► back-off ─► room ───────────────────────────────►─┤
//	                 │  └──► hold at a gate ─► room ─────────────────────────►─┤
//	                 ├─────► dead or parked ─► settled, the next is the head ─►┘
//	                 └─────► give back: over
type chain struct {
	*delivery
	rs     []*record.Record
	fault  fault.Fault   // the head's
	before time.Duration // the head's Spent before its last attempt
	free   int           // the head's failures in a row that cost it nothing
	// few says that hardly any of the message failed: it gives its lane to the next message while dead letters are written
	// and acknowledged. A message of failures keeps what it occupies: that is what bounds how many wait for the topic at once.
	few bool
	// waiting says that the records were told to wait: they occupy nothing.
	waiting bool
	// holding is what the hooks know that it waits for.
	holding holds
	// held is what the last hold waited for.
	held string
	// last is of the head's calls.
	last downstream.Streak
	// doubt counts the head's failures that nobody has corroborated.
	doubt doubt
	// busy is for how long the head has been.
	busy busy
	// flooded is the record that the flood guard refused: it had its verdict already and is charged no more. turn is its
	// pass of the guard's gate.
	flooded *record.Record
	turn    downstream.Pass
}

func (c *chain) head() *record.Record { return c.rs[0] }

// run ends when all are settled or the delivery is over. A panic here is a hook's or a port's; the others go on.
func (c *chain) run() {
	first := c.head()
	defer func() {
		if p := recover(); p != nil {
			_ = c.rt.stray(first, p) // it has told the hooks; the records are given back with the message
		}
	}()
	defer func() {
		c.turn.Release()
		c.doubt.clear(c.rt.Gates)
		c.holding.end(false) // the last: it calls a hook, which may panic again
	}()
	for len(c.rs) > 0 && c.step() {
	}
}

// step does what the head's failure asks for; false when the delivery is over.
func (c *chain) step() bool {
	r := c.head()
	if e := c.called(); e != nil && e.begun {
		c.last = e.streak
	}
	d := c.rt.Retry.Decide(c.state(r))
	c.charge(r, d)
	c.busy.note(c)
	c.noteHold(d)
	note(r, c.fault, d)
	switch d.Action {
	case Again:
		return c.backOff(r, d)
	case Hold:
		return c.wait(d)
	case Park:
		return c.park(r, func(ctx context.Context) error { return c.rt.Parking.Park(ctx, r, d.Wait, c.failure(r)) })
	case Follow:
		return c.park(r, func(ctx context.Context) error { return c.rt.Parking.Follow(ctx, r) })
	case Dead:
		if rs := c.unread(); len(rs) > 1 {
			return c.deadTogether(rs)
		}
		return c.dead(r, d)
	case GiveBack:
		return false
	}
	return false
}

// stuck says that the record's last attempt is not over. Such a record is not parked: each round would take a goroutine and
// a writer, or a place of the dependency, and in the end the process. Once it has no attempts left it is dead.
func stuck(r *record.Record) bool {
	return errors.Is(r.Err, dedup.ErrStuck) || errors.Is(r.Err, errStuck)
}

func (c *chain) state(r *record.Record) State {
	s := State{
		Fault: c.fault, Cause: causeOf(r.Err), NotRun: errors.Is(r.Err, record.ErrNotRun), Ending: r.Ending(),
		Attempts: r.Attempts, Spent: r.Spent, Normal: c.rt.normalTime(), Free: c.free,
		Blocked:    c.rt.Parking != nil && errors.Is(r.Err, dedup.ErrParked),
		Repeatable: c.rt.Repeatable, Random: rand.Float64(),
	}
	s.NeverRan = s.Cause != ""
	if c.rt.Parking != nil {
		s.OutOfRounds = c.rt.Parking.Last(r)
		s.CanPark = !s.OutOfRounds && !stuck(r)
	}
	if e := c.called(); e != nil {
		s.Charge, s.Called = e.Charge, e.Dependency
	}
	var panicked *fault.PanicError
	if s.Cause == "" && errors.As(r.Err, &panicked) {
		s.Cause = dlq.Panic
	}
	if park, ok := fault.AsPark(r.Err); ok {
		s.ParkFor = &park.Delay
	}
	return s
}

// called is what the head's call ended with, nil if that is not why it failed.
func (c *chain) called() *CallError {
	var e *CallError
	if errors.As(c.head().Err, &e) {
		return e
	}
	return nil
}

// charge keeps the record's accounts, here and nowhere else. What costs nothing takes the attempt's time back too: an
// outage of ten hours, probed by this record, must leave it the budget that it had.
func (c *chain) charge(r *record.Record, d Decision) {
	c.doubt.note(c, d)
	if !d.Charged || c.flooded == r {
		r.Spent = c.before
		c.free++
		return
	}
	c.free = 0
	r.Attempts++
	r.LastFailed = time.Now()
	if r.FirstFailed.IsZero() {
		r.FirstFailed = r.LastFailed
	}
}

func (c *chain) backOff(r *record.Record, d Decision) bool {
	if d.Wait > 0 {
		c.debug("attempt failed, again", r, "wait", d.Wait)
		c.pause()
		if !c.sleep(d.Wait) {
			return false
		}
	}
	if d.Charged {
		r.Spent += d.Wait
	}
	return c.again()
}

// again runs the chain once more. One domain goes in and one comes out.
func (c *chain) again() bool {
	needs := c.needs()
	if needs != noCall {
		c.atGate(c.rt.Gates.called)
	}
	ps, waited, ok := c.enter(&c.holding, c.rs, c.waiting, needs)
	c.waiting, c.held = waited, ""
	if !ok {
		return false
	}
	if c.waiting && !record.Resume(c.rs) {
		ps.release()
		return false
	}
	c.waiting = false
	head := c.head()
	left := c.pass(c.rs, ps, nil, c.last)
	if len(left) == 0 {
		c.holding.end(true)
		c.rs = nil
		return true
	}
	c.rs, c.fault, c.before = left[0].rs, left[0].fault, left[0].before
	if c.head() != head {
		c.begin()
	}
	return true
}

// atGate: where a gate keeps others from coming after it, the chain is in nobody's count of doubts.
func (c *chain) atGate(called *downstream.Gate) {
	if _, shut := called.Since(); shut {
		c.doubt.clear(c.rt.Gates)
	}
}

// needs says that the chain must pass the gate of the calls: its head is about to call, or is held there for what its
// handler said.
func (c *chain) needs() needs {
	called := c.rt.Gates.called
	switch {
	case called == nil || c.held != called.Name() && !c.rt.uncalled(c.head()):
		return noCall
	case c.last.Failed():
		return callAgain
	}
	return aCall
}

// begin is for a new head.
func (c *chain) begin() {
	c.holding.end(true)
	c.free, c.flooded, c.last = 0, nil, downstream.Streak{}
	c.doubt.clear(c.rt.Gates)
	c.doubt, c.busy = doubt{}, busy{}
	c.turn.Release()
	c.turn = downstream.Pass{}
}

// advance makes the next record the head, after the head was settled here. It comes from a pass in which it was not
// run, or found unreadable.
func (c *chain) advance() bool {
	c.rs = c.rs[1:]
	c.begin()
	if len(c.rs) > 0 {
		c.fault, c.before = c.classify(c.head().Err), c.head().Spent
	}
	return true
}

// unread gives the head and those right behind it, as far as they cannot be read.
func (c *chain) unread() []*record.Record {
	for i, r := range c.rs {
		var e *DecodeError
		if !errors.As(r.Err, &e) {
			return c.rs[:i]
		}
	}
	return c.rs
}

// deadTogether takes unreadable records to their end side by side. No handler has seen them or will, so there is no
// order among them to keep; one after the other, a partition full of them would take a round trip to the database and
// one to the broker each.
func (c *chain) deadTogether(rs []*record.Record) bool {
	c.pause()
	alone := make([]*chain, len(rs))
	for i, r := range rs {
		alone[i] = &chain{delivery: c.delivery, rs: rs[i : i+1 : i+1], fault: c.classify(r.Err), before: r.Spent, few: c.few, waiting: true}
	}
	c.follow(alone)
	if len(record.Remaining(rs)) > 0 {
		return false
	}
	c.rs = c.rs[len(rs)-1:]
	return c.advance()
}
