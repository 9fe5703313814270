package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// Effects runs records through a route's work and makes what it did durable, each record exactly once. *dedup.Route
// is one.
type Effects interface {
	// Run blocks until each of rs is settled or has Err set. It never charges an attempt.
	Run(ctx context.Context, rs []*record.Record, work dedup.Work)
}

// Graves takes verdicts. *dedup.Route is one.
type Graves interface {
	// Bury makes the verdict durable, or says that the record was dealt with before.
	Bury(ctx context.Context, r *record.Record, g dedup.Grave) (dedup.Answer, error)
}

// DeadLetters writes dead letters. *dlq.Writer is one.
type DeadLetters interface {
	// Write returns nil once the letter is acknowledged by all in-sync replicas.
	Write(ctx context.Context, l dlq.Letter) error
}

var (
	_ Effects     = (*dedup.Route)(nil)
	_ Graves      = (*dedup.Route)(nil)
	_ DeadLetters = (*dlq.Writer)(nil)
	_ Parking     = (*parking.Parker)(nil)
)

// Parking takes records that are to be tried again much later.
type Parking interface {
	// Park makes the place of r, which has failed, durable. A delay of 0 is Parking's own schedule.
	Park(ctx context.Context, r *record.Record, delay time.Duration, f parking.Failure) error
	// Follow makes the place of r durable, which did not run because a record of its key is parked.
	Follow(ctx context.Context, r *record.Record) error
	// Last says that r has been parked as often as it may be.
	Last(r *record.Record) bool
}

// Route is what the layers of one route share. Name, Group, Inbox, Graves and DeadLetters are required. It must not be
// changed once a layer was made from it, and is safe for concurrent use then.
type Route struct {
	// Name is the route's, permanent, and Group the consumer group's: those of its dedup.RouteConfig.
	Name, Group string
	// Inbox makes effects durable, Graves verdicts, DeadLetters copies of dead records.
	Inbox       Effects
	Graves      Graves
	DeadLetters DeadLetters
	// Parking takes what is parked, a *parking.Parker. The route's inbox must ask for the same lines
	// (dedup.RouteConfig.ParkedKey), and a handler with the same layers must get what is due from a parking.Source. nil: the
	// route does not park.
	Parking Parking

	// Identity finds the producer's identity of a record; the first resolver that finds one decides. Defaults to
	// CloudEvents' ce_id, then Watermill's _watermill_message_uuid. A record without one is known by its coordinates.
	Identity []dedup.Resolver
	// Decode sets r.Event from r.Value. An error of it is Permanent, reason undecodable, unless it says otherwise with a
	// verb: one that asks a schema registry returns fault.Unavailable. nil leaves Event nil.
	Decode func(r *record.Record) error
	// Kind says what the handler that the layers are put around gets. Queued: a message of one, whose effects it adds to
	// dedup.Pending(msg.Context()). Grouped: a message of all records of a group (record.Records), in one transaction, whose
	// error is a fault.Members where it is about some of them only. Defaults to dedup.Executed: a message of one in a
	// transaction.
	Kind dedup.Kind
	// Work is what the route does, where no middleware stands between the stack and it: it is called in place of the
	// handler, with the context that the handler's message would have, and spares the message. It must be of the Kind. nil:
	// the handler that the layers are put around is called.
	Work dedup.Work
	// Classifier says what errors mean. Defaults to the built-in rules.
	Classifier *fault.Classifier
	// Retry says how often and how long.
	Retry Policy
	// Repeatable says that what the route does may be repeated although an attempt's outcome is unknown. A route that calls
	// must be.
	Repeatable bool
	// Call calls out for each record before its transaction. nil: the route does not call.
	Call *Call

	// Gates are those of the dependencies; give them to the route's subscription too. Defaults to gates of the route's
	// own.
	Gates *Gates
	// Flood guards the dead letter topic. Defaults to a guard of the route's own.
	Flood *FloodGuard

	// NotTaken says of the route that a record of a replay topic names, and which is not this one, whether nobody takes it
	// up and that is to be reported: of many letters once. nil: it is never reported.
	NotTaken func(replayTopic, route string) bool

	// Batches says that everything around the stack knows messages of several records, which have no payload. If it is
	// false, the first one is reported: a stock middleware before the stack would look at an empty message.
	Batches bool
	// RedactError gives the text of an error where it is kept or shown: in dead letters, dead rows, what is parked, reports
	// and the log. What dlq.Message replaces, and the record's own key, id, header values and value, is replaced in its text
	// too. It must be quick, safe for concurrent use, and say the same of the same error. Defaults to nil: err.Error().
	RedactError func(err error) string
	// Hooks are told what happens. Defaults to reports in the log.
	Hooks *record.Hooks
	// Tracer makes the spans. nil: none.
	Tracer trace.Tracer
	// Logger gets each dead letter and each attempt that will be repeated, at level debug: what an operator must know
	// goes to the hooks. Defaults to slog.Default().
	Logger *slog.Logger

	prepareOnce sync.Once
	invalid     error // what validate found
	orderOnce   sync.Once
	stuck       stuckCalls
	callers     callers
	room        room
	times       attemptTimes
	batchOnce   sync.Once
	keyOnce     sync.Once
	keyTaken    atomic.Bool  // by some call
	keyless     atomic.Int32 // calls that succeeded without one
	insideOnce  sync.Once
}

// Stack gives the layers in the one order that loses nothing, outermost first:
//
//	guard ► observe ► retry ► decode ► call ► inbox ► (middlewares added after these) ► handler
//
// For a route without Call its layer does nothing.
//
// It sets the defaults of rt, and refuses one that cannot work, with all its problems in one error.
func Stack(rt *Route) ([]message.HandlerMiddleware, error) {
	if rt.prepare(); rt.invalid != nil {
		return nil, rt.invalid
	}
	return []message.HandlerMiddleware{Guard(rt), Observe(rt), Retry(rt), Decode(rt), CallOut(rt), Inbox(rt)}, nil
}

// ErrOrder reports layers that are not in the order of [Stack]. Match with errors.Is.
var ErrOrder = errors.New("layers are not in the order of middleware.Stack")

// Verify says whether mws, outermost first, have the layers of one stack in their order. Other middlewares may stand
// around them and between them; they see one empty message. Whoever puts the layers together by hand calls it at start;
// a wrong order that nobody verified is found by the first record, which is given back.
func Verify(mws ...message.HandlerMiddleware) error {
	handler := message.HandlerFunc(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	for i := len(mws) - 1; i >= 0; i-- {
		handler = mws[i](handler)
	}
	t := &trail{probe: true}
	msg := message.NewMessage("verify", nil)
	msg.SetContext(context.WithValue(context.Background(), trailKey{}, t))
	if _, err := handler(msg); err != nil {
		return fmt.Errorf("%w: a middleware among them answers the empty message with an error: %w", ErrOrder, err)
	}
	if !t.complete() {
		return fmt.Errorf("%w: have %s, want %s", ErrOrder, names(t.seen), names(order[:]))
	}
	return nil
}

// prepare sets the defaults, once.
func (rt *Route) prepare() {
	rt.prepareOnce.Do(func() {
		if rt.Call != nil {
			rt.Call = rt.Call.withDefaults()
			rt.Retry.CallTimeout = or(rt.Retry.CallTimeout, rt.Call.Timeout)
		}
		rt.Retry = rt.Retry.WithDefaults()
		rt.Classifier = or(rt.Classifier, &fault.Classifier{})
		rt.Logger = or(rt.Logger, slog.Default())
		rt.Hooks = or(rt.Hooks, &record.Hooks{OnReport: record.LogReports(rt.Logger)})
		if rt.Identity == nil {
			rt.Identity = dedup.DefaultIdentity()
		}
		if rt.Gates == nil {
			// A probe is over when its attempt must be, with the grace for a handler that ignores its context.
			rt.Gates = NewGates(downstream.GateConfig{ProbeTimeout: rt.Retry.CallTimeout + 2*rt.Retry.AttemptTimeout + 5*time.Second})
		}
		if rt.Call != nil && rt.Call.Dependency != nil {
			rt.Gates.calls(rt.Call.Dependency)
		}
		rt.room.gate = downstream.NewGate(downstream.GateConfig{Name: NoRoom})
		if rt.Flood == nil {
			rt.Flood = NewFloodGuard(FloodConfig{})
		}
		if err := rt.validate(); err != nil {
			rt.invalid = fmt.Errorf("route %q: %w", rt.Name, err)
		}
	})
}

func (rt *Route) validate() error {
	var errs []error
	missing := func(is bool, field string) {
		if is {
			errs = append(errs, errors.New(field+" is required"))
		}
	}
	missing(rt.Name == "", "Name")
	missing(rt.Group == "", "Group")
	missing(rt.Inbox == nil, "Inbox")
	missing(rt.Graves == nil, "Graves")
	missing(rt.DeadLetters == nil, "DeadLetters")
	if rt.Kind > dedup.Grouped {
		errs = append(errs, fmt.Errorf("a Kind of %d is none of dedup's", rt.Kind))
	} else if rt.Work != nil && dedup.KindOf(rt.Work) != rt.Kind {
		errs = append(errs, fmt.Errorf("its Work is %s, and its Kind says %s", dedup.KindOf(rt.Work), rt.Kind))
	}
	for i, find := range rt.Identity {
		missing(find == nil, fmt.Sprintf("Identity[%d]", i))
	}
	return errors.Join(append(errs, rt.Retry.validate(), rt.Call.validate(rt))...)
}

func (rt *Route) report(r record.Report) {
	r.Route, r.Err = rt.Name, redact.Of(r.Err, rt.RedactError)
	if rt.Hooks.OnReport != nil {
		rt.Hooks.OnReport(r)
	}
}
