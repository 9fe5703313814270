package dedup

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// attempt is one run of one handler: the context it gets, and the transaction that it finds there. It is one allocation
// where the context package would take five and a timer: the writer's one timer looks after its deadline, and the end
// of the delivery comes from the Run call that waits for it anyway. It is never used again for another run: a handler
// may leave a goroutine behind that still holds it.
type attempt struct {
	context.Context // the delivery's, for its values
	deadline        time.Time
	// The handler has a transaction, or queues into a batch. Both are nil for a trip, in which no handler runs.
	*executing
	batch *pgx.Batch

	mu       sync.Mutex
	done     chan struct{} // made when it is first asked for
	err      error
	after    []*afterFunc
	finished []func(error) // to be told what the attempt came to
}

// executing is what a handler has that executes its SQL.
type executing struct {
	scope scope
	root  handlerTx
}

type afterFunc struct{ f func() }

// newAttempt is for a handler that executes.
func newAttempt(delivery context.Context, deadline time.Time) *attempt {
	x := &struct {
		attempt
		in executing
	}{}
	a := &x.attempt
	a.Context, a.deadline, a.executing = delivery, deadline, &x.in
	a.root.scope = &a.scope
	a.scope.attempt = a
	return a
}

// newQueueing is for a handler that queues.
func newQueueing(delivery context.Context, deadline time.Time) *attempt {
	x := &struct {
		attempt
		in pgx.Batch
	}{}
	a := &x.attempt
	a.Context, a.deadline, a.batch = delivery, deadline, &x.in
	return a
}

// Deadline is the earlier of the attempt's and the delivery's.
func (a *attempt) Deadline() (time.Time, bool) {
	if d, ok := a.Context.Deadline(); ok && d.Before(a.deadline) {
		return d, true
	}
	return a.deadline, true
}

func (a *attempt) Done() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil {
		a.done = make(chan struct{})
		if a.err != nil {
			close(a.done)
		}
	}
	return a.done
}

func (a *attempt) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Value knows the transaction or the batch, and for the rest asks the delivery's context.
func (a *attempt) Value(key any) any {
	switch key.(type) {
	case record.Transaction:
		return true
	case txKey:
		if a.executing != nil {
			return &a.root
		}
		return nil
	case pendingKey:
		if a.batch != nil {
			return a.batch
		}
		return nil
	case afterKey:
		if a.batch != nil {
			return a
		}
		return nil
	}
	return a.Context.Value(key)
}

// finish tells what the attempt came to, once.
func (a *attempt) finish(err error) {
	a.mu.Lock()
	finished := a.finished
	a.finished = nil
	a.mu.Unlock()
	for _, f := range finished {
		f(err)
	}
}

// AfterFunc is how the context package hangs a child on a context that it did not make itself. Without it each of pgx's
// statements would start a goroutine.
func (a *attempt) AfterFunc(f func()) (stop func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		go f()
		return func() bool { return false }
	}
	h := &afterFunc{f}
	a.after = append(a.after, h)
	return func() bool { return a.drop(h) }
}

func (a *attempt) drop(h *afterFunc) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, x := range a.after {
		if x == h {
			last := len(a.after) - 1
			a.after[i] = a.after[last]
			a.after = a.after[:last]
			return true
		}
	}
	return false
}

// end ends the context. The first call wins.
func (a *attempt) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return
	}
	a.err = err
	if a.done != nil {
		close(a.done)
	}
	for _, h := range a.after {
		go h.f()
	}
	a.after = nil
}
