package downstream

import (
	"context"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// grace is how long after its deadline an operation may take to notice it, before the breaker counts it as failed.
const grace = 5 * time.Second

// Do runs op, one call to d, behind the breaker and in one of the MaxConcurrent places: a *fault.RefusedError says that
// op was not run. It never tries again: [Run] does, and is told whether it may. op must end when ctx does.
//
// Inside of a route that calls d, and inside of another Do of it, op is just run: the call is counted already.
//
// Inside of a call to another dependency its error is a [ForeignError].
func (d *Dependency) Do(ctx context.Context, op func(ctx context.Context) error) (err error) {
	if err := d.transaction(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil && !d.counted(ctx) {
		return context.Cause(ctx)
	}
	ctx, cancel, err := d.shared(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if d.counted(ctx) {
		return op(ctx)
	}
	c := &Call{d: d}
	inner, err := d.enter(ctx, c, d.cfg.Timeout)
	if err != nil {
		return err
	}
	// What is not known at the end is said by nobody: op has panicked, or ended its goroutine.
	f, failed := fault.Fault{Class: fault.ClassCancelled}, true
	defer func() {
		d.places.leave()
		err = d.mark(ctx, err, c.conclude(failed, f, reason(ctx, err)))
	}()
	err = op(context.WithValue(inner, countedKey{}, d))
	f, failed = d.judge(ctx, err)
	return err
}

// enter is the way into a call outside of a route, which takes no longer than without if ctx has no deadline. It gives
// the call's context.
func (d *Dependency) enter(ctx context.Context, c *Call, without time.Duration) (context.Context, error) {
	if err := d.admit(ctx); err != nil {
		d.refused("", err)
		return nil, err
	}
	ctx = c.traced(ctx)
	if err := c.begin(limit(ctx, without)); err != nil {
		return nil, err
	}
	if d.places.try() {
		return ctx, nil
	}
	err := &fault.RefusedError{Dependency: d.cfg.Name, Reason: fault.ErrBulkheadFull}
	f, _ := d.judge(context.WithoutCancel(ctx), err)
	c.end(fault.SaysNothing, record.CallRefused, f, nil)
	return nil, err
}

// judge says what the end of a call under ctx means.
func (d *Dependency) judge(ctx context.Context, err error) (f fault.Fault, failed bool) {
	if err == nil {
		return fault.Fault{}, false
	}
	if _, foreign := d.Foreign(err); foreign {
		return fault.Fault{Class: fault.ClassCancelled, Rule: "another dependency"}, true
	}
	return d.cfg.Classifier.ClassifyCall(ctx, err), true
}

// limit is when a call under ctx counts as failed: soon after the deadline of ctx, or of what it may take without one.
func limit(ctx context.Context, without time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return time.Until(at) + grace
	}
	return without + grace
}
