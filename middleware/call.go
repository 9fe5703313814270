package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// CallInbox is what the call layer asks of the inbox. *dedup.Route is one.
type CallInbox interface {
	// Look says what the inbox knows of rs already, in their order; it inserts nothing. dedup.Fresh is nothing.
	Look(ctx context.Context, rs []*record.Record) ([]dedup.Answer, error)
	// Enter guards one call: a record that may be taking its process down runs alone in this process, with a durable
	// mark; others share. leave must be called once the call has returned, also one that was given up. Its errors are
	// those of Effects.Run.
	Enter(ctx context.Context, r *record.Record) (leave func(), err error)
}

// Call is what a route asks of a dependency for each record before it writes. Dependency, Do and Inbox are required.
type Call struct {
	// Dependency is what is called. Routes that call the same one share it.
	Dependency *downstream.Dependency
	// Timeout is the deadline of one call. Defaults to 10s.
	Timeout time.Duration
	// HardGrace is how long a call may ignore that its context has ended before its record goes on without it. Its
	// goroutine and its place among the Dependency's MaxConcurrent are lost until it returns. Defaults to 5s.
	HardGrace time.Duration
	// Do calls. It may be called again for the same record, always with the same downstream.Permit in its context; it
	// must not write to r, and after its context has ended nobody waits for it for long.
	//
	// The reply goes to r.Reply, where the handler finds it with record.Of; a nil reply becomes a value of a type that
	// nobody else has, because nil says that the call was not made. fault.Skip settles the record without an effect.
	Do func(ctx context.Context, r *record.Record) (reply any, err error)
	// Keyed says that Do may be repeated because the dependency executes each idempotency key once. A route whose calls
	// take no key, from downstream.Transport or downstream.IdempotencyKey, is reported, once. Defaults to false.
	Keyed bool
	// NoFallback forbids that a downstream.Fallback gives Do a substitute for what it reads. Defaults to false.
	NoFallback bool
	// Inbox says for whom there is nothing to be called.
	Inbox CallInbox
}

func (c Call) withDefaults() *Call {
	c.Timeout = or(c.Timeout, 10*time.Second)
	c.HardGrace = or(c.HardGrace, 5*time.Second)
	return &c
}

// reserved are the names of gates that no called dependency may have.
var reserved = [...]string{fault.Database, fault.DeadLetterTopic, RetryAfter, BusyElsewhere, Postponed, NoRoom, NoBudget, Flood, RouteStopped}

func (c *Call) validate(rt *Route) error {
	if c == nil {
		return nil
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Dependency != nil, "Call.Dependency is required")
	check(c.Do != nil, "Call.Do is required")
	check(c.Inbox != nil, "Call.Inbox is required")
	check(c.Timeout > 0, "Call.Timeout (%s) must be positive", c.Timeout)
	check(c.HardGrace > 0, "Call.HardGrace (%s) must be positive", c.HardGrace)
	check(rt.Retry.CallTimeout == c.Timeout, "Retry.CallTimeout (%s) must be Call.Timeout (%s), or 0 for that", rt.Retry.CallTimeout, c.Timeout)
	check(rt.Repeatable, "Call needs Repeatable: after a crash or a rebalance a call whose outcome nobody knows is made "+
		"again, whatever the route says; set it if the dependency executes each idempotency key once, or the call changes nothing")
	if c.Dependency != nil {
		name := c.Dependency.Name()
		check(!slices.Contains(reserved[:], name), "Call.Dependency must not be named %q, as something of ours is", name)
		check(rt.Gates.called == c.Dependency.Gate(), "Gates have another gate with the name of Call.Dependency, %q: give "+
			"NewGates the Dependency's own", name)
	}
	return errors.Join(errs...)
}

// CallOut is the layer that calls out for each record before its transaction, if the route does: each record for itself,
// side by side, in order by key, and never for one that the inbox knows already. The reply stays on the record for the
// delivery, so that an Apply that fails does not call again. What a call ended with is a *[CallError].
//
// Whoever has its reply goes inwards at once, with all that have theirs by then, while others still call. Within a
// domain the next one calls when the one before it is settled, not earlier: what is behind a failure stays untouched.
func CallOut(rt *Route) message.HandlerMiddleware {
	return rt.layer(callLayer, func(next message.HandlerFunc) message.HandlerFunc {
		if rt.Call == nil {
			return next
		}
		return func(msg *message.Message) ([]*message.Message, error) {
			rs, err := record.Records(msg)
			if err != nil {
				return nil, err
			}
			soon := earlyOf(msg.Context())
			soon.given(rs)
			c := &calling{rt: rt, msg: msg, next: next, soft: rs[0].Soft(), all: rs, soon: soon}
			c.run(rs)
			return nil, nil // the verdicts stand on the records
		}
	})
}

// noReply is the reply of a call that gave none: r.Reply says whether the call was made.
type noReply struct{}

// errUncalled is for a record that the inbox knew when it was asked, and a moment later did not (its row was swept, or
// removed by hand): it must not be applied without a reply. It is tried again, and called.
var errUncalled = fault.Busy(errors.New("inbox has forgotten the record since it was asked"))

// uncalled says that r needs a call before it can be applied.
func (rt *Route) uncalled(r *record.Record) bool {
	if rt.Call == nil || r.Reply != nil {
		return false
	}
	_, skip := r.Event.(skipped)
	return !skip
}
