package downstream

import (
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// tries are those of one operation outside of a route: one call to the breaker, in one place. What Plan decides is only
// carried out here.
type tries struct {
	d    *Dependency
	ctx  context.Context
	most int         // Config.Retry.Attempts; 1 in a route of another dependency, which tries again itself
	n    int         // the one that is under way or has ended, 1 for the first
	last fault.Class // of the one before
}

func (d *Dependency) tries(ctx context.Context) tries {
	t := tries{d: d, ctx: ctx, most: d.cfg.Retry.Attempts, n: 1}
	if _, inRoute := PermitFrom(ctx); inRoute {
		t.most = 1
	}
	return t
}

// plan decides about the failure f. A decision for another try has its token, which is given back if there is none.
func (t *tries) plan(f fault.Fault, method string, repeatable bool) Decision {
	policy := t.d.cfg.Retry
	policy.Attempts, t.last = t.most, f.Class
	token := t.d.tokens.spend()
	d := Plan(Signal{
		Retry: policy, Fault: f, Method: method, Repeatable: repeatable,
		Attempt: t.n, Left: t.left(f), BreakerOpen: !t.d.closed(), NoTokens: !token, Random: rand.Float64(),
	})
	if token && !d.Again {
		t.d.tokens.giveBack()
	}
	if !d.Again {
		t.refused(d.Reason)
	}
	return d
}

// left is the time for waiting. A Retry-After that is longer than a try is nothing to wait for with a place in hand.
func (t *tries) left(f fault.Fault) time.Duration {
	if f.RetryAfter > t.d.cfg.Timeout {
		return t.d.cfg.Timeout
	}
	if at, bounded := t.ctx.Deadline(); bounded {
		return time.Until(at)
	}
	return NoLimit
}

// refused tells why there is no further try. Where there could never have been one nothing was refused.
func (t *tries) refused(why Reason) {
	if t.most == 1 {
		return
	}
	t.event("not tried again", attribute.String("headrace.class", t.last.String()), attribute.String("headrace.reason", string(why)))
	t.d.tell.retry(record.RetryInfo{Dependency: t.d.cfg.Name, Outcome: string(why), Attempt: t.n})
	if why == RetryTokens {
		t.d.refused("", &fault.RefusedError{Dependency: t.d.cfg.Name, Reason: fault.ErrNoRetryTokens})
	}
}

// wait is before the next try; false if the caller gets what there is.
func (t *tries) wait(d Decision) bool {
	if !backoff.Wait(t.ctx, d.Wait) {
		t.refused(DeadlineExhausted)
		return false
	}
	if !t.d.closed() { // it may have opened meanwhile, by the calls of others
		t.refused(Open)
		return false
	}
	t.n++
	t.d.breaker.repeated()
	t.event("retry", attribute.Int("headrace.attempt", t.n), attribute.String("headrace.class", t.last.String()),
		attribute.String("headrace.wait", d.Wait.String()))
	t.d.tell.retry(record.RetryInfo{Dependency: t.d.cfg.Name, Outcome: record.RetryRepeated, Attempt: t.n})
	return true
}

// succeeded is a success that a further try has brought.
func (t *tries) succeeded() {
	if t.n > 1 {
		t.d.tell.retry(record.RetryInfo{Dependency: t.d.cfg.Name, Outcome: record.RetrySucceeded, Attempt: t.n})
	}
}

func (t *tries) event(name string, attributes ...attribute.KeyValue) {
	if t.d.cfg.Tracer != nil {
		trace.SpanFromContext(t.ctx).AddEvent(name, trace.WithAttributes(attributes...))
	}
}

func (d *Dependency) closed() bool { return d.State() == record.BreakerClosed }
