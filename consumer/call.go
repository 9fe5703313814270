package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/record"
)

// CallRoute calls a dependency for each record of one topic, and then writes what came of it.
//
//	Call ──► Apply, or Queue, and the inbox row, one transaction
//
// A call cannot join the transaction. It is made at least once: after a crash, a rebalance or an answer that was lost it
// is made again, always with the same idempotency key (see package downstream). Apply and its effects happen exactly
// once, with the result of the call that this process saw. While the dependency is down the route holds, and no record
// is charged for it.
//
// T is what the value is decoded into, R what the call returns.
type CallRoute[T, R any] struct {
	// Name is permanent: the inbox remembers by it, and idempotency keys are made of it. Unique in a consumer group, without
	// '/', spaces and control characters. Required.
	Name string
	// Topic is the Kafka topic. Routes may share one; each sees every record. Required.
	Topic string
	// Dependency is what Call calls. Routes that call the same one share it: what one learns all know. Required.
	Dependency *downstream.Dependency
	// Repeat says why a call may be made again although nobody knows whether the one before was carried out. Required.
	Repeat Repeat
	// CallTimeout is the deadline of one call. At least 10 ms.
	//
	// Defaults to 10 s.
	CallTimeout time.Duration
	// Calls are what Call and Reconcile ask, one after the other, each with the most that it takes: New proves that they fit
	// into CallTimeout with CallReserve, and each Do, Run and request of a Transport has its Budget for a deadline. Of calls
	// side by side declare the longest; what is declared more than once has the longest of its budgets. Their dependencies
	// are watched as Config.Dependencies are.
	//
	// Defaults to none: Call is one call to Dependency, which may take all of CallTimeout.
	Calls []Outgoing
	// CallReserve is what Call needs beside Calls: the end of CallTimeout, of which no declared call gets anything.
	//
	// Defaults to 0.
	CallReserve time.Duration
	// NoFallback forbids that a downstream.Fallback answers a read in Call with a substitute: set it where money is decided
	// by what is read.
	//
	// Defaults to false.
	NoFallback bool
	// Reconcile asks the dependency whether the call for e was carried out already, and gives its result then. It is asked
	// before each Call, because nobody remembers over a crash whether there was one; found is false only if it is known that
	// there was none, and that none is under way. It must change nothing. Required for RepeatReconciled, and for it alone.
	Reconcile func(ctx context.Context, e Event[T]) (result R, found bool, err error)
	// Call asks the dependency, outside of any transaction. Use an http.Client with a downstream.Transport, or
	// downstream.Do: they send the idempotency key and say what a failure means. See package fault for what other errors
	// mean. Calls of different keys run side by side. Required.
	Call func(ctx context.Context, e Event[T]) (R, error)
	// Apply writes what the event and the call's result are to effect, as Route.Apply does. If it fails it is tried again
	// with the same result, without another call, for as long as this process has the record. Either Apply or Queue is
	// required.
	Apply func(ctx context.Context, tx pgx.Tx, e Event[T], result R) error
	// Queue is for a route that queues its SQL instead of executing it, as QueueRoute.Queue does, with the call's result: the
	// statements of all records whose calls are back share a round trip.
	Queue func(b *pgx.Batch, e Event[T], result R) error

	Options
}

var _ AnyRoute = CallRoute[any, any]{}

// Repeat is why a call may be made again when its outcome is unknown: its answer was lost, or the process was. Such calls
// cannot be avoided, so a route must say it.
type Repeat uint8

const (
	// RepeatUnset is refused at start.
	RepeatUnset Repeat = iota
	// RepeatKeyed: the dependency carries out each Idempotency-Key once, and answers a repeated one as it did before.
	RepeatKeyed
	// RepeatSafe: the call changes nothing, or the same when it is made twice.
	RepeatSafe
	// RepeatReconciled: Reconcile is asked whether the call was carried out before it is made.
	RepeatReconciled
)

// Outgoing is one of a route's calls.
type Outgoing struct {
	// Dependency is what is called. Required.
	Dependency *downstream.Dependency
	// Budget is the most that the call takes, and its deadline. Required.
	Budget time.Duration
}

// errNoReply is a bug of ours.
var errNoReply = errors.New("the record has no reply of its call")

// calling is what a CallRoute has beside a Route, without its types.
type calling struct {
	dependency *downstream.Dependency // nil if the user gave none
	repeat     Repeat
	timeout    time.Duration
	do         func(ctx context.Context, r *record.Record) (reply any, err error) // nil if the user gave none
	both       bool                                                               // Apply and Queue
	calls      []Outgoing
	reserve    time.Duration
	noFallback bool
	reconciles bool
}

func (r CallRoute[T, R]) spec() spec {
	s := newSpec[T]("CallRoute", r.Name, r.Topic, defaultMaxBatch, r.Options)
	s.call = &calling{
		dependency: r.Dependency, repeat: r.Repeat, timeout: orElse(r.CallTimeout, defaultCallTimeout),
		calls: r.Calls, reserve: r.CallReserve, noFallback: r.NoFallback, reconciles: r.Reconcile != nil,
	}
	if r.Call != nil {
		within := sharing(r.Calls, r.CallReserve)
		s.call.do = func(ctx context.Context, rec *record.Record) (any, error) { return r.do(ctx, rec, within) }
	}
	switch {
	case r.Apply != nil:
		s.work = dedup.Apply(r.apply)
	case r.Queue != nil:
		s.work = dedup.Queue(r.queue)
	}
	s.call.both = r.Apply != nil && r.Queue != nil
	return s
}

// do gives a pointer, because a reply that is nil would be none: an R may be an interface or a pointer itself.
func (r CallRoute[T, R]) do(ctx context.Context, rec *record.Record, within func(context.Context) context.Context) (any, error) {
	e := eventOf[T](rec)
	op := downstream.Operation[R]{Do: func(ctx context.Context, _ downstream.Try) (R, error) { return r.Call(within(ctx), e) }}
	if r.Reconcile != nil {
		op.Reconcile = func(ctx context.Context) (R, bool, error) { return r.Reconcile(within(ctx), e) }
	}
	result, err := downstream.Run(ctx, r.Dependency, op)
	if err != nil {
		return nil, err
	}
	return &result, nil
}

func (r CallRoute[T, R]) apply(ctx context.Context, tx pgx.Tx, rec *record.Record) error {
	result, err := resultOf[R](rec)
	if err != nil {
		return err
	}
	return r.Apply(ctx, tx, eventOf[T](rec), *result)
}

func (r CallRoute[T, R]) queue(_ context.Context, b *pgx.Batch, rec *record.Record) error {
	result, err := resultOf[R](rec)
	if err != nil {
		return err
	}
	return r.Queue(b, eventOf[T](rec), *result)
}

// resultOf is what the record's call gave. There is none of a record that was not called for: it is never written with a
// result that nobody gave.
func resultOf[R any](rec *record.Record) (*R, error) {
	if result, ok := rec.Reply.(*R); ok {
		return result, nil
	}
	return nil, errNoReply
}
