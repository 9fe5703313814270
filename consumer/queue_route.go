package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/record"
)

// queueRoute is the kind's name.
const queueRoute = "QueueRoute"

// QueueRoute is a Route whose handler queues its SQL instead of executing it: the statements of all records that share a
// transaction, and its COMMIT, are one round trip. It promises what a Route promises, at a multiple of the speed.
type QueueRoute[T any] struct {
	// Name is permanent: the inbox remembers by it. Unique in a consumer group, without '/', spaces and control characters.
	// Required.
	Name string
	// Topic is the Kafka topic. Routes may share one; each sees every record. Required.
	Topic string
	// Queue adds to b what the event is to effect, and touches nothing else: no connection, no other service. It may run
	// more than once, and what it does elsewhere would be done again. nil is success, as far as it goes: a statement that
	// fails is the event's failure too. Functions for results (QueuedQuery.Exec, Query, QueryRow) run when these come, cost
	// one more round trip a group, and their errors are the event's. See dedup.Queue for what may be queued. Required.
	Queue func(b *pgx.Batch, e Event[T]) error

	Options
}

var _ AnyRoute = QueueRoute[any]{}

func (r QueueRoute[T]) spec() spec {
	s := newSpec[T](queueRoute, r.Name, r.Topic, defaultLargeBatch, r.Options)
	if r.Queue != nil {
		s.work = dedup.Queue(func(_ context.Context, b *pgx.Batch, rec *record.Record) error {
			return r.Queue(b, eventOf[T](rec))
		})
	}
	return s
}
