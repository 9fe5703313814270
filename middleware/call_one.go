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

// oneCall is the call for the first record of a file, on a goroutine of the route's callers. What it takes on the way
// (gate, place, inbox, breaker) is given back whatever happens, and the file with a verdict on it. A caller that is
// stuck is left behind: then that is done without it.
type oneCall struct {
	c *calling
	f *file
	r *record.Record

	pass     downstream.Pass
	admitted bool
	last     downstream.Streak // of the record's calls before
	release  func()            // the place, with the turn that the inbox gave
	placed   bool
	permit   *downstream.Call // until its end is known
	ctx      context.Context
	cancel   context.CancelFunc
	endSpan  func(error)
	began    time.Time

	how atomic.Uint32 // who was first: the call's return, or patience

	// Of the message's patience.
	until      time.Time
	prev, next *oneCall
	waited     bool
}

func (o *oneCall) run() {
	o.r = o.f.rs[0]
	err, begun := errStray, false
	defer func() {
		if begun {
			return
		}
		if p := recover(); p != nil {
			_ = o.c.rt.stray(o.r, p) // it has told the hooks; the record is given back
		}
		o.giveBack(err)
	}()
	if err = o.begin(); err == nil {
		begun = true
		o.do()
	}
}

// begin takes what the call needs, asks the breaker last, and starts the clock. The error is what stands on the record.
func (o *oneCall) begin() error {
	c, r, call := o.c, o.r, o.c.rt.Call
	if c.over.Load() || r.Ending() {
		return record.ErrNotRun
	}
	if o.admit(); !o.admitted {
		return c.refused(&fault.RefusedError{Dependency: call.Dependency.Name(), Reason: fault.ErrBreakerOpen})
	}
	if err := o.place(); err != nil {
		return err
	}
	c.begun.Add(1)
	o.placed = true
	if err := o.enter(); err != nil {
		return err
	}
	if c.over.Load() || r.Ending() { // it may have waited for long
		return record.ErrNotRun
	}
	permit, err := call.Dependency.BeginAgain(c.rt.Name, call.Timeout+call.HardGrace, o.last)
	if err != nil {
		return c.refused(err)
	}
	o.permit = permit
	o.ctx, o.cancel = c.deadline(r)
	r.Begin()
	o.ctx, o.endSpan = c.rt.attemptCall(o.ctx, r)
	o.began = time.Now()
	return nil
}

// admit takes the pass that the chain brought, once, or another if that needs no wait.
func (o *oneCall) admit() {
	b, _ := o.c.msg.Context().Value(broughtKey{}).(*brought)
	if b != nil && b.taken.CompareAndSwap(false, true) {
		if o.r == b.head {
			o.last = b.last
		}
		o.pass, o.admitted = b.pass, true
		return
	}
	o.pass, o.admitted = o.c.rt.Call.Dependency.Gate().TryEnter()
}

// place takes one of the dependency's MaxConcurrent. A call that is stuck takes it along, with the turn that the inbox
// gave: otherwise each try would leave one more goroutine behind that nobody can end.
func (o *oneCall) place() (err error) {
	ctx, ok := o.c.msg.Context(), false
	o.release, ok = o.c.rt.Call.Dependency.Acquire(ctx, o.c.soft)
	switch {
	case ok:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return record.ErrNotRun
}

// enter has the inbox guard the call. It comes last of what may be waited for: the turn that it gives keeps others waiting.
func (o *oneCall) enter() error {
	leave, err := o.c.rt.Call.Inbox.Enter(o.c.msg.Context(), o.r)
	if err != nil {
		return err
	}
	release := o.release
	o.release = func() {
		leave()
		release()
	}
	return nil
}

// giveBack ends what a call had taken, with the verdict of its record.
func (o *oneCall) giveBack(err error) {
	c := o.c
	defer func() {
		if p := recover(); p != nil { // a hook's
			_ = c.rt.stray(o.r, p)
			err = errStray
		}
		o.r.Err = err
		c.back <- o.f
		c.inHand.Done()
	}()
	if o.admitted {
		defer o.pass.Release()
	}
	if o.release != nil && !o.left() {
		defer o.release()
	}
	if o.placed {
		defer c.begun.Add(-1)
	}
	if o.cancel != nil {
		defer o.cancel()
	}
	if o.permit != nil {
		o.permit.End(true, nothingLearnt)
	}
}

// refused is what stands on a record that was not let in.
func (c *calling) refused(err error) *CallError {
	return &CallError{
		Dependency: c.rt.Call.Dependency.Name(), Err: err, Fault: c.rt.Classifier.ClassifyCall(c.msg.Context(), err),
	}
}

// judge tells breaker and hooks what came of a call, and gives what stands on its record. The gate follows the breaker:
// it is told nothing here, and has its turn back when the call has ended.
func (o *oneCall) judge(a answer) error {
	c, r := o.c, o.r
	took := time.Since(o.began)
	r.End()
	r.Spent += took
	o.endSpan(a.err)
	c.missKey(o.ctx, r, a.err)
	class, err := c.conclude(o.ctx, r, o.permit, a.reply, a.err)
	o.permit = nil
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
			permit.Fail(f, c.rt.shown(r, downstream.WhyDegraded(ctx)))
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
