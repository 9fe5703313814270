package consumer

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// AnyRoute is a Route, a QueueRoute, a BatchRoute or a CallRoute of any type. It is sealed: the kinds of route are those
// of this package.
type AnyRoute interface{ spec() spec }

// Route hands the records of one topic to one handler. Its effects and the inbox row become durable in one
// transaction.
type Route[T any] struct {
	// Name is permanent: the inbox remembers by it. Unique in a consumer group, without '/', spaces and control characters.
	// Required.
	Name string
	// Topic is the Kafka topic. Routes may share one; each sees every record. Required.
	Topic string
	// Apply writes what the event is to effect, through tx alone: it may run more than once, and what it does elsewhere
	// would be done again. nil is success; see package fault for what an error means. It must not end the transaction.
	// Required.
	Apply func(ctx context.Context, tx pgx.Tx, e Event[T]) error

	Options
}

var _ AnyRoute = Route[any]{}

// Options are what routes may differ in. The zero value has the defaults.
type Options struct {
	// Attempts is how often a record's handler, or its call, may fail before the record is dead, where trying again can
	// help at all.
	//
	// Defaults to 3.
	Attempts int
	// AttemptTimeout is the deadline of one run of Apply or Queue, and of one statement. At least 10 ms, at most
	// dedup.MaxAttemptTimeout.
	//
	// Defaults to 5 s.
	AttemptTimeout time.Duration
	// BackoffBase is the most that the wait before the second attempt takes; it doubles with each, up to BackoffCap.
	// Waits are random below that, so that records that failed together do not return together.
	//
	// Defaults to 200 ms.
	BackoffBase time.Duration
	// BackoffCap is the most that one wait takes.
	//
	// Defaults to 10 s.
	BackoffCap time.Duration
	// NormalTime is what an attempt takes as a rule, its call included, say its p99. A record whose budget (Attempts times
	// their timeouts, and the back-offs) has less left after a failure is not tried with the rest of it: it is parked if the
	// route parks, else held for a back-off, after which its budget, but not its attempts, begins anew. downstream.Measured
	// takes the p99 of the attempts that succeeded in the last half to one minute, once they are 100.
	//
	// Defaults to 0: any time is enough.
	NormalTime time.Duration

	// Decode turns a record's value into T.
	//
	// Defaults to JSON.
	Decode Decoder
	// Store is where the route remembers what it has done, for good: a route whose store has changed is refused at start.
	// dedup.ByOffset does not know a record that its producer sent twice: each copy has its effect. It remembers the offsets
	// of a partition in one row, in place of a row a record, and where the group begins to read after a crash. Identity
	// names Event.ID and a call's idempotency key there, and nothing more.
	//
	// Defaults to dedup.ByID, the inbox, which knows redeliveries and a producer's duplicates.
	Store dedup.Store
	// Identity says by what the inbox knows a record: the first resolver that finds something decides. A record that
	// none of them knows is known by its coordinates, which stops redeliveries but not a producer's duplicates.
	//
	// Defaults to CloudEvents' ce_id, then Watermill's _watermill_message_uuid.
	Identity []dedup.Resolver
	// Order is what runs one after the other: the records of a key, of a partition, or nothing.
	//
	// Defaults to kafka.ByKey.
	Order kafka.Order
	// DeadLetterTopic is where records go that cannot be processed.
	//
	// Defaults to "<topic>.dlq"; a route on a topic of that name must give one.
	DeadLetterTopic string
	// Park, if not nil, lets what has used up its attempts wait in Postgres instead of being dead, for hours and in the order
	// of its key; &parking.Policy{} has the defaults. fault.Park is for it. It needs an inbox (Store) and a route that does
	// not keep the order of whole partitions (Order). All members of the group must have it before the first record is parked.
	//
	// Defaults to nil: an exhausted record is dead, and fault.Park waits where it is, in the way of its key.
	Park *parking.Policy
	// Flood holds a partition whose records nearly all die, in place of emptying it into the dead letter topic: a deploy is at
	// fault then, and not the data. middleware.NewFloodGuard makes one with limits of its own, and its Release lets a
	// partition go on whose records are as bad as they look. It counts in this process, since its start. Two routes on one
	// topic need one each.
	//
	// Defaults to a guard of the route's own, which stops after 10,000 dead letters in a row of a partition, or nine in ten of
	// its last 20,000 records.
	Flood *middleware.FloodGuard
	// Middlewares wrap the handler of each record, inside its transaction and its attempt, first one outermost. They get
	// a message of one, and find the transaction with dedup.Tx, those of a QueueRoute the batch with dedup.Pending. Those of
	// a BatchRoute get a message of all records of the group (record.Records), which has no payload.
	//
	// Defaults to none.
	Middlewares []message.HandlerMiddleware
	// Rules are asked what an error means before the built-in ones.
	//
	// Defaults to none.
	Rules []fault.Rule

	// MaxBatch is the most records that share a message and a transaction. Nothing waits to fill one.
	//
	// Defaults to 500, and to 2000 for a QueueRoute and a BatchRoute, whose groups take few trips however large they are.
	MaxBatch int
	// Lanes is how many messages of one partition are processed side by side.
	//
	// Defaults to 2.
	Lanes int
}

// spec is a route without its type.
type spec struct {
	kind, name, topic string
	replay            string // the replay topic
	namesLetters      bool   // whether the route names its dead letter topic itself
	options           Options
	decode            func(*record.Record) error
	call              *calling   // nil for a route that calls nobody
	work              dedup.Work // nil if the user gave none
}

// byOffset says whether the route remembers by offsets.
func (s spec) byOffset() bool { return s.options.Store == dedup.ByOffset }

// callTimeout is the deadline of one call, 0 for a route that calls nobody.
func (s spec) callTimeout() time.Duration {
	if s.call == nil {
		return 0
	}
	return s.call.timeout
}

// specsOf gives the routes without their types. One that is nil, or a nil pointer to one, has none.
func specsOf(group string, routes []AnyRoute) (specs []spec, ps []Problem) {
	if len(routes) == 0 {
		return nil, []Problem{{What: "there are no routes", Fix: "give New at least one Route"}}
	}
	for i, r := range routes {
		if v := reflect.ValueOf(r); r == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			ps = append(ps, Problem{What: fmt.Sprintf("route %d of %d is nil", i+1, len(routes)), Fix: "give one, or leave it out"})
			continue
		}
		s := r.spec()
		s.replay = dlq.ReplayTopic(s.topic, group)
		specs = append(specs, s)
	}
	return specs, ps
}

func namesOf(specs []spec) []string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.name
	}
	return names
}

func (r Route[T]) spec() spec {
	s := newSpec[T]("Route", r.Name, r.Topic, defaultMaxBatch, r.Options)
	if r.Apply != nil {
		s.work = dedup.Apply(func(ctx context.Context, tx pgx.Tx, rec *record.Record) error {
			return r.Apply(ctx, tx, eventOf[T](rec))
		})
	}
	return s
}

// newSpec is what all kinds of route have.
func newSpec[T any](kind, name, topic string, maxBatch int, o Options) spec {
	s := spec{
		kind: kind, name: name, topic: topic, namesLetters: o.DeadLetterTopic != "",
		options: o.withDefaults(maxBatch), decode: decodeInto[T](o.Decode),
	}
	if !strings.HasSuffix(topic, dlq.Suffix) {
		s.options.DeadLetterTopic = orElse(s.options.DeadLetterTopic, dlq.DefaultTopic(topic))
	}
	return s
}

// decodeInto decodes a record's value into a fresh T, which stays on the record for the delivery.
func decodeInto[T any](decode Decoder) func(*record.Record) error {
	if decode == nil {
		decode = JSON
	}
	return func(r *record.Record) error {
		data := new(T)
		if err := decode(r, data); err != nil {
			return err
		}
		r.Event = data
		return nil
	}
}

func (s spec) budget(c Config) budget {
	return budget{
		route: s.name, attempts: s.options.Attempts, callTimeout: s.callTimeout(), attemptTimeout: s.options.AttemptTimeout,
		backoffBase: s.options.BackoffBase, backoffCap: s.options.BackoffCap,
		deadLetterTimeout: c.DeadLetterTimeout, commitReserve: c.CommitReserve, maxPollInterval: c.MaxPollInterval,
		window: s.window(),
	}
}
