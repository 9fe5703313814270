package middleware

import (
	"context"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// failed is what the failure of a call that had begun means: for the breaker, and for its record.
func (c *calling) failed(ctx context.Context, r *record.Record, permit *downstream.Call, err error) *CallError {
	dep := c.rt.Call.Dependency
	if foreign, ok := dep.Foreign(err); ok {
		return c.foreign(ctx, permit, foreign, err)
	}
	f := c.classify(ctx, err)
	if dep.RefusedInside(f) {
		c.refusedInside(r, err)
	}
	charge := permit.Fail(f, c.rt.shown(r, err))
	return &CallError{
		Dependency: dep.Name(), Fault: f, Charge: charge, Err: err, begun: true, streak: permit.Streak(), answers: dep.Answers(),
	}
}

// foreign is the failure of another dependency that the call needed too: nothing is learnt of the route's, and whose it is
// the other one has said. The gate of the route is not the other's, so an outage of it is waited for by back-off, until
// its own breaker refuses.
func (c *calling) foreign(ctx context.Context, permit *downstream.Call, e *downstream.ForeignError, err error) *CallError {
	permit.End(true, nothingLearnt)
	f, charge := c.judge(ctx, err), e.Charge
	if charge == downstream.Outage {
		charge = downstream.Free
	}
	return &CallError{
		Dependency: e.Dependency, Fault: f, Charge: charge, Err: err, begun: true, streak: permit.Streak(), answers: e.Answers,
	}
}

// refusedInside reports a call that its own dependency has refused, once.
func (c *calling) refusedInside(r *record.Record, err error) {
	c.rt.insideOnce.Do(func() {
		c.rt.report(record.Report{
			Kind: record.ReportCallWithoutContext, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: c.rt.shown(r, err),
			Hint: "a call inside a call without its context: its dependency took it for another one and refused it; make its " +
				"requests with the context that the call is given",
		})
	})
}

// judge says what a call's error means: judged here, where its own context is at hand, and never again. The delivery's
// comes first: a context whose deadline has passed does not notice what ended after it.
func (c *calling) judge(ctx context.Context, err error) fault.Fault {
	if c.msg.Context().Err() != nil {
		return fault.Fault{Class: fault.ClassCancelled, Rule: "delivery ended"}
	}
	f := c.rt.Classifier.ClassifyCall(ctx, err)
	if f.Class == fault.ClassUnavailable {
		f.RetryAfter = min(f.RetryAfter, c.rt.Retry.MaxHold) // the gate would wait for as long
	}
	return f
}
