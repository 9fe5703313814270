package middleware

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// brought is the pass of the dependency's gate that a chain waited for. It travels in the message's context and is for
// one call, the head's; those behind it call under ordinary admission once it succeeded.
type brought struct {
	pass  downstream.Pass
	head  *record.Record
	last  downstream.Streak // of the head's calls
	taken atomic.Bool
}

type broughtKey struct{}

// call calls for r, on a worker's goroutine. It gives nil when r has its reply or is skipped, and otherwise what stands
// on r. What it takes on the way (gate, place, inbox, breaker) is given back whatever happens.
func (c *calling) call(r *record.Record) error {
	if c.over.Load() || r.Ending() {
		return record.ErrNotRun
	}
	dep := c.rt.Call.Dependency
	pass, last, ok := c.admit(r, dep.Gate())
	if !ok {
		return c.refused(&fault.RefusedError{Dependency: dep.Name(), Reason: fault.ErrBreakerOpen})
	}
	defer pass.Release()
	p, err := c.place(dep)
	if err != nil {
		return err
	}
	defer p.leave()
	c.begun.Add(1)
	defer c.begun.Add(-1)
	if err := c.enter(r, p); err != nil {
		return err
	}
	if c.over.Load() || r.Ending() { // it may have waited for long
		return record.ErrNotRun
	}
	return c.begin(r, p, last)
}

// admit gives the pass that the chain brought, once, or another if that needs no wait.
func (c *calling) admit(r *record.Record, gate *downstream.Gate) (_ downstream.Pass, last downstream.Streak, ok bool) {
	b, _ := c.msg.Context().Value(broughtKey{}).(*brought)
	if b != nil && b.taken.CompareAndSwap(false, true) {
		if r == b.head {
			last = b.last
		}
		return b.pass, last, true
	}
	pass, ok := gate.TryEnter()
	return pass, last, ok
}

// place is one of the dependency's MaxConcurrent, with the turn that the inbox gave. A call that is stuck takes them
// along: otherwise each try would leave one more goroutine behind that nobody can end.
type place struct {
	release func()
	lent    bool // to the stuck call's goroutine; touched by the worker only
}

func (p *place) leave() {
	if !p.lent {
		p.release()
	}
}

func (c *calling) place(dep *downstream.Dependency) (*place, error) {
	ctx := c.msg.Context()
	release, ok := dep.Acquire(ctx, c.soft)
	switch {
	case ok:
		return &place{release: release}, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, record.ErrNotRun
}

// enter has the inbox guard the call. It comes last of what may be waited for: the turn that it gives keeps others waiting.
func (c *calling) enter(r *record.Record, p *place) error {
	leave, err := c.rt.Call.Inbox.Enter(c.msg.Context(), r)
	if err != nil {
		return err
	}
	release := p.release
	p.release = func() {
		leave()
		release()
	}
	return nil
}

// refused is what stands on a record that was not let in.
func (c *calling) refused(err error) *CallError {
	return &CallError{
		Dependency: c.rt.Call.Dependency.Name(), Err: err, Fault: c.rt.Classifier.ClassifyCall(c.msg.Context(), err),
	}
}

// begin asks the breaker, makes the call, and tells breaker and hooks what came of it. The gate follows the breaker: it is
// told nothing here, and has its turn back when the call has ended.
func (c *calling) begin(r *record.Record, p *place, last downstream.Streak) error {
	call := c.rt.Call
	permit, err := call.Dependency.BeginAgain(c.rt.Name, call.Timeout+call.HardGrace, last)
	if err != nil {
		return c.refused(err)
	}
	defer permit.End(true, nothingLearnt) // if a hook panics; otherwise it has its end by then
	ctx, cancel := c.deadline(r)
	defer cancel()
	r.Begin()
	ctx, end := c.rt.attemptCall(ctx, r)
	began := time.Now()
	reply, err := c.try(ctx, r, p)
	took := time.Since(began)
	r.End()
	r.Spent += took
	end(err)
	c.missKey(ctx, r, err)
	class, err := c.conclude(ctx, r, permit, reply, err)
	if c.rt.Hooks.OnAttempt != nil {
		c.rt.Hooks.OnAttempt(record.AttemptInfo{Route: c.rt.Name, Class: class, Took: took, Attempt: r.Attempt()})
	}
	return err
}

// keylessCalls is how many calls succeed without a key, and none with one, before it is reported: one that succeeds may
// have asked nobody, because the record needed no call.
const keylessCalls = 10

// missKey reports a route whose calls take no key, although that is why they may be repeated. One that may have asked
// nobody, because it was skipped, refused or found unfit, says nothing.
func (c *calling) missKey(ctx context.Context, r *record.Record, err error) {
	call := c.rt.Call
	_, foreign := call.Dependency.Foreign(err)
	switch {
	case foreign || !call.Keyed:
		return
	case downstream.KeyTaken(ctx):
		c.rt.keyTaken.Store(true)
		return
	case err == nil && (c.rt.keyTaken.Load() || c.rt.keyless.Add(1) < keylessCalls):
		return
	case err != nil && c.classify(ctx, err).Evidence(call.Dependency.Name()) != fault.SaysDown:
		return
	}
	c.rt.keyOnce.Do(func() {
		c.rt.report(record.Report{
			Kind: record.ReportKeyNotSent, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			Hint: "the route says that " + call.Dependency.Name() + " executes each idempotency key once, but its call took none: " +
				"a repeated one is executed again. Call through an http.Client with downstream's Transport, or send downstream.IdempotencyKey",
		})
	})
}

// deadline makes the context of one call: the message's values and end, the record, on whose behalf it is made, and its
// deadline, with a cause that says whose that was.
func (c *calling) deadline(r *record.Record) (context.Context, context.CancelFunc) {
	call := c.rt.Call
	ctx := downstream.WithPermit(record.With(c.msg.Context(), r), downstream.Permit{
		Dependency: call.Dependency, Group: c.rt.Group, Route: c.rt.Name, ID: r.Identity.Key, NoFallback: call.NoFallback,
	})
	return context.WithTimeoutCause(ctx, call.Timeout, &deadlineError{call.Timeout})
}

// nothingLearnt is the end of a call that says nothing about the dependency. One that skips its record is: it may have
// asked nobody, and counted as an answer it would have others charged.
var nothingLearnt = fault.Fault{Class: fault.ClassCancelled, Rule: "nothing learnt"}

// conclude is what a call that has ended means: for the breaker, for its record, and (class) for the hooks.
func (c *calling) conclude(
	ctx context.Context, r *record.Record, permit *downstream.Call, reply any, err error,
) (class string, _ error) {
	if err == nil {
		// A handler that went on with a substitute has heard nothing of its dependency but the failure.
		if f, degraded := downstream.DegradedBy(ctx); degraded {
			permit.End(true, f)
		} else {
			permit.End(false, fault.Fault{})
			c.rt.Gates.answered()
		}
		r.Reply = reply
		if reply == nil {
			r.Reply = noReply{}
		}
		return "", nil
	}
	if _, skip := fault.AsSkip(err); skip {
		permit.End(true, nothingLearnt)
		r.Event = skipped{err} // the inbox writes its row
		return "", nil
	}
	e := c.failed(ctx, r, permit, err)
	return e.Fault.Class.String(), e
}

// classify judges what was the route's dependency's, and no other one's.
func (c *calling) classify(ctx context.Context, err error) fault.Fault {
	f, name := c.judge(ctx, err), c.rt.Call.Dependency.Name()
	if f.Class == fault.ClassUnavailable && f.Evidence(name) == fault.SaysDown {
		f.Dependency = name // a host's name, as a rule: the records wait at the gate of the dependency
	}
	return f
}
