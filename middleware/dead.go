package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// dead takes the head from its verdict to its outcome. The order makes each end of the process between two steps safe:
//
//	permit   refused: the record has no row, and is judged again when the deploy is better
//	row      committed; a crash here: redelivered, the inbox answers dead, the letter is written, the handler never runs
//	letter   acknowledged; a crash here: written twice, counted once, by its coordinates
//	settle   the offset may move
//
// Nothing in it depends on the record's context: a verdict that was reached is carried out although the claim ends
// meanwhile, each step under a deadline of its own.
//
// One whose row was there before needs no permit: its verdict is durable, its process died before the letter, or an
// operator said so. What was judged then is no sign of how things are now, so the guard does not count it either.
func (c *chain) dead(r *record.Record, d Decision) bool {
	if errors.Is(r.Err, dedup.ErrDead) {
		c.turn.Release()
		return c.admitted(r, d, Permit{})
	}
	permit, ok := c.rt.Flood.Admit(partitionOf(r))
	if !ok {
		return c.refused(r)
	}
	c.turn.OK()
	return c.admitted(r, d, permit)
}

func (c *chain) admitted(r *record.Record, d Decision, permit Permit) bool {
	used := false
	defer func() {
		if used {
			permit.Used()
		} else {
			permit.Return()
		}
	}()
	if c.few {
		c.pause()
	}
	answer, ok := c.bury(r, d)
	if !ok {
		return false
	}
	if o := answer.Outcome(); o != record.Dead { // an unknown COMMIT was one, or another record had the identity
		c.rt.Flood.Settled(partitionOf(r), 1)
		r.Settle(o)
		return c.advance()
	}
	if !c.produce(r, d) {
		return false
	}
	used = true
	r.Settle(record.Dead)
	c.debug("record is dead", r, "reason", d.Reason)
	return c.advance()
}

// bury makes the verdict durable before anything is produced, and asks in the same statement whether the record was
// dealt with after all.
func (c *chain) bury(r *record.Record, d Decision) (answer dedup.Answer, ok bool) {
	grave := dedup.Grave{Reason: string(d.Reason), Err: c.rt.text(r, r.Err)}
	ok = c.until(c.rt.Gates.Get(fault.Database), record.ReportVerdictNotWritten, c.databaseDown, func(ctx context.Context) (err error) {
		answer, err = c.rt.Graves.Bury(ctx, r, grave)
		if err == nil && answer.Outcome() == record.Unsettled {
			err = fmt.Errorf("inbox answers %s to a verdict", answer)
		}
		return err
	})
	return answer, ok
}

func (c *chain) databaseDown(err error) bool {
	f := c.rt.Classifier.Classify(context.WithoutCancel(c.ctx()), err)
	return f.Class == fault.ClassUnavailable || errors.Is(err, context.DeadlineExceeded)
}

func (c *chain) produce(r *record.Record, d Decision) bool {
	letter := dlq.Letter{
		Record: r, Reason: d.Reason, Class: c.classOf(r, d).String(), Err: diedOf(r.Err), Attempts: r.Attempts, RedactError: c.rt.redactor(r.Err),
		FirstFailed: r.FirstFailed, LastFailed: r.LastFailed, Group: c.rt.Group, Route: c.rt.Name,
	}
	if t, ok := r.Parked.(*parking.Trial); ok && len(t.History) > 0 {
		letter.FirstFailed, letter.History = t.History[0].At, t.History.String()
	}
	return c.until(c.rt.Gates.Get(fault.DeadLetterTopic), record.ReportDeadLetterNotWritten, topicDown, func(ctx context.Context) error {
		return c.rt.DeadLetters.Write(ctx, letter)
	})
}

// diedOf is the error of which a record died. One whose verdict was committed before this delivery died of what its row
// says: the letter that its process did not live to write must not differ from the one that it would have written.
// Of a call it died of what that returned.
func diedOf(err error) error {
	var (
		dead *dedup.DeadError
		call *CallError
	)
	switch {
	case errors.As(err, &dead) && dead.Text != "":
		return errors.New(dead.Text)
	case errors.As(err, &call):
		return call.Err
	}
	return err
}

// classOf is what the error of which r died meant. A dead row does not keep it, but it follows from the reason.
func (c *chain) classOf(r *record.Record, d Decision) fault.Class {
	if !errors.Is(r.Err, dedup.ErrDead) {
		return c.fault.Class
	}
	switch d.Reason {
	case dlq.Exhausted:
		return fault.ClassTransient
	case dlq.UnknownOutcome:
		return fault.ClassAmbiguous
	case dlq.Permanent, dlq.Undecodable, dlq.Panic, dlq.IDConflict, dlq.CrashLoop, dlq.Manual:
	}
	return fault.ClassPermanent
}

// topicDown is every error but those of this one letter, for which no other one should wait.
func topicDown(err error) bool { return !errors.Is(err, dlq.ErrTooLarge) }

// until does f, each time under its own deadline, until it succeeds: first at once, then, while down says that the
// dependency is what failed, when its gate lets it through, else after a growing back-off. The handler is not run for
// it. It is false when the claim is ending. From the first failure to the end it is one hold, the tries included: whoever
// looked during one would see that nothing waits.
func (c *chain) until(gate *downstream.Gate, kind string, down func(error) bool, f func(ctx context.Context) error) bool {
	var s stalled
	defer func() { s.end() }()
	for try := 0; ; try++ {
		pass, ok := gate.TryEnter()
		if !ok {
			s.begin(c, gate, gate.Why())
			if pass, ok = gate.Enter(c.ctx(), c.soft); !ok {
				return false
			}
		}
		err := c.timed(pass, down, f)
		if err == nil {
			c.holding.got(gate.Name())
			return true
		}
		s.begin(c, gate, c.rt.shown(c.head(), err))
		c.tell(try, kind, err)
		wait := backoff.Exponential(c.rt.Retry.Base, c.rt.Retry.Cap, try)
		if !down(err) && !c.sleep(wait/2+backoff.Jitter(wait/2)) || c.head().Ending() {
			return false
		}
	}
}

// stalled is a chain that holds at the gate of what it cannot do.
type stalled struct{ over func() }

// begin is once: why it holds is what it began with.
func (s *stalled) begin(c *chain, gate *downstream.Gate, why error) {
	if s.over != nil {
		return
	}
	c.pause()
	c.hold(gate.Name(), func(string) reason { return reason{err: why} })
	s.over = func() {}
	if gate.Name() == fault.DeadLetterTopic {
		s.over = c.rt.Gates.waitForLetter(why)
	}
}

func (s *stalled) end() {
	if s.over != nil {
		s.over()
	}
}

// timed runs f once and tells the gate; Release for a panic, which says nothing about the dependency.
func (c *chain) timed(pass downstream.Pass, down func(error) bool, f func(ctx context.Context) error) error {
	defer pass.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx()), c.rt.Retry.DeadLetterTimeout)
	defer cancel()
	err := f(ctx)
	switch {
	case err == nil:
		pass.OK()
	case down(err):
		pass.FailedBecause(time.Time{}, c.rt.shown(c.head(), err))
	}
	return err
}

// passOf waits for the gate in a hold.
func (c *chain) passOf(gate *downstream.Gate) (p downstream.Pass, ok bool) {
	if p, ok = gate.TryEnter(); ok {
		return p, true
	}
	c.pause()
	c.hold(gate.Name(), atGate(gate))
	return gate.Enter(c.ctx(), c.soft)
}

// tell reports the first failure; that it goes on is what OnHold says.
func (c *chain) tell(try int, kind string, err error) {
	if try > 0 {
		return
	}
	r := c.head()
	c.rt.report(record.Report{
		Kind: kind, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: err,
		Hint: "the record stays unsettled and is tried again until it succeeds; its handler is not run for that",
	})
}

// refused waits at the flood guard's gate, and runs the handler again once it is let through: as the probe, to find out
// whether things are better, or because they are, and the verdict was reached when they were not.
func (c *chain) refused(r *record.Record) (ok bool) {
	why := c.rt.shown(r, r.Err)
	gate, first := c.rt.Flood.refuse(partitionOf(r), why)
	if first {
		c.rt.report(record.Report{
			Kind: record.ReportFloodGuard, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: why,
			Hint: "nearly everything fails: a bad deploy and not bad data? The partition waits, one record is tried again " +
				"each " + c.rt.Flood.cfg.Probe.String() + "; FloodGuard.Release lets the dead letters through",
		})
	}
	c.turn.FailedBecause(time.Time{}, why) // if it was the probe, it goes to the tail
	c.pause()
	c.hold(Flood, c.reason)
	c.turn, ok = gate.Enter(c.ctx(), c.soft)
	c.flooded = r
	return ok && c.again()
}
