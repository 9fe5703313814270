package downstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/fault"
)

// Operation is something that is asked of a dependency by any client, and why it may be asked again when nobody knows
// whether it was carried out. Without Idempotent, Keyed and Reconcile it is not: what was surely not sent is tried again,
// and an answer that never came is the caller's, ClassAmbiguous.
type Operation[R any] struct {
	// Name is of the operation within its handler, for the idempotency key (see WithOperation). It must not change.
	Name string
	// Do asks. It must end when ctx does, which has a deadline for this try. Required.
	Do func(ctx context.Context, t Try) (R, error)
	// Idempotent says that it changes nothing, or the same when it is done twice.
	Idempotent bool
	// Keyed says that Do sends Try.Key, which the dependency carries out once.
	Keyed bool
	// Reconcile asks what became of a try whose outcome is unknown: its result if it was carried out; found is false only if
	// it is known that it was not, and will not be any more. Its error means that nobody knows, and then nothing is sent
	// again. It must change nothing.
	Reconcile func(ctx context.Context) (result R, found bool, err error)
}

// Try is one try of an Operation.
type Try struct {
	// Number is 1 for the first one.
	Number int
	// Key is the idempotency key, the same for all tries: on behalf of a record [IdempotencyKey], and so the same after a
	// crash too; elsewhere one of this Run. "" if the operation is not Keyed.
	Key string
}

// Run runs op behind d's breaker, in one of its places, and tries it again as Config.Retry says, each try with a deadline
// of its own (Config.Timeout): together one call to the breaker and the hooks. The errors are Do's, a *fault.RefusedError
// or, in a call to another dependency, a [ForeignError].
//
// In a route that calls d, and within a Do of it, op is tried once and the route tries again. There Reconcile, if there is
// one, is asked before anything is sent: nobody remembers over a crash what was.
func Run[R any](ctx context.Context, d *Dependency, op Operation[R]) (result R, err error) {
	if op.Do == nil {
		return result, fault.Permanent(errNoDo)
	}
	if err := d.transaction(ctx); err != nil {
		return result, err
	}
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	ctx, cancel, err := d.shared(ctx)
	if err != nil {
		return result, err
	}
	defer cancel()
	r := running[R]{op: op, key: op.key(ctx)}
	_, inRoute := PermitFrom(ctx)
	r.unknown = inRoute && op.Reconcile != nil
	if d.counted(ctx) {
		return r.try(ctx, 1)
	}
	c := &Call{d: d}
	inner, err := d.enter(ctx, c, d.longest())
	if err != nil {
		return result, err
	}
	d.tokens.earn()
	f, failed := fault.Fault{Class: fault.ClassCancelled}, true // after a panic, and a goroutine that op has ended
	defer func() {
		d.places.leave()
		err = d.mark(ctx, err, c.conclude(failed, f, reason(ctx, err)))
	}()
	result, f, failed, err = r.all(context.WithValue(inner, countedKey{}, d), d)
	return result, err
}

var errNoDo = errors.New("downstream: Operation.Do is nil: set what is to be asked")

// key is that of all tries.
func (op Operation[R]) key(ctx context.Context) string {
	if !op.Keyed {
		return ""
	}
	if key, ok := IdempotencyKey(ctx, op.Name); ok {
		return key
	}
	return uuid.NewString()
}

// running is an operation between its tries.
type running[R any] struct {
	op  Operation[R]
	key string
	// unknown says that something may have been carried out: then it is asked about before anything is sent.
	unknown bool
	// sent says that a try before may have been carried out, and that nothing but the key keeps another one from it.
	sent bool
}

// all are its tries, of a call that has begun.
func (r *running[R]) all(ctx context.Context, d *Dependency) (result R, f fault.Fault, failed bool, err error) {
	tries := d.tries(ctx)
	for {
		result, f, failed, err = r.timed(ctx, d, tries.n)
		if !failed {
			tries.succeeded()
			return result, f, failed, err
		}
		r.unknown = r.op.Reconcile != nil && (r.unknown || f.Class == fault.ClassAmbiguous)
		next := tries.plan(f, "", r.op.Idempotent || r.op.Keyed || r.op.Reconcile != nil)
		if !next.Again || !tries.wait(next) {
			return result, f, failed, r.outcome(err, f)
		}
		r.sent = r.sent || r.op.Keyed && !r.op.Idempotent && r.op.Reconcile == nil && f.Class == fault.ClassAmbiguous
	}
}

// outcome is err, the failure f of the last try: that this one was surely not carried out says nothing of those before it,
// and whoever runs op again does it under another key.
func (r *running[R]) outcome(err error, f fault.Fault) error {
	if !r.sent || f.Class != fault.ClassTransient {
		return err
	}
	return sentBefore(err, f.RetryAfter)
}

// sentBefore is err, which says that a try was surely not carried out, after one that may have been.
func sentBefore(err error, after time.Duration) error {
	err = fmt.Errorf("after a try that may have been carried out: %w", err)
	return fault.Say(err, fault.Fault{Class: fault.ClassAmbiguous, RetryAfter: after, Rule: "sent before"})
}

// timed is a try with its deadline, judged while its context is at hand.
func (r *running[R]) timed(ctx context.Context, d *Dependency, n int) (result R, f fault.Fault, failed bool, err error) {
	ctx, cancel := deadline(ctx, d.cfg.Timeout)
	defer cancel()
	result, err = r.try(ctx, n)
	f, failed = d.judge(ctx, err)
	return result, f, failed, err
}

// try asks what became of the ones before, and sends only what was surely not carried out.
func (r *running[R]) try(ctx context.Context, n int) (R, error) {
	if r.unknown {
		result, found, err := r.op.Reconcile(ctx)
		if err != nil {
			return result, fault.Ambiguous(fmt.Errorf("ask what became of it: %w", err))
		}
		if found {
			return result, nil
		}
		r.unknown = false
	}
	return r.op.Do(ctx, Try{Number: n, Key: r.key})
}
