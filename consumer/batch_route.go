package consumer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/record"
)

// BatchRoute hands all events of a group to its handler at once, for set-based SQL. It promises for each event what a
// Route promises, as long as the handler writes for each of them what it would write for it alone.
type BatchRoute[T any] struct {
	// Name is permanent: the inbox remembers by it. Unique in a consumer group, without '/', spaces and control characters.
	// Required.
	Name string
	// Topic is the Kafka topic. Routes may share one; each sees every record. Required.
	Topic string
	// Apply writes what the events are to effect, through tx alone. They are in order, never none, of one topic and maybe of
	// several partitions; a key may come several times. It may run more than once, with fewer events each time.
	//
	// nil is success for all. fault.Members names those that failed, by index, and Apply runs again without them. Any other
	// error undoes all, and those that fail alone are found by halving; fault.Skip skips all. See dedup.Batch. Required.
	Apply func(ctx context.Context, tx pgx.Tx, es []Event[T]) error

	Options
}

var _ AnyRoute = BatchRoute[any]{}

func (r BatchRoute[T]) spec() spec {
	s := newSpec[T]("BatchRoute", r.Name, r.Topic, defaultLargeBatch, r.Options)
	if r.Apply != nil {
		s.work = dedup.Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			es := make([]Event[T], len(rs))
			for i, rec := range rs {
				es[i] = eventOf[T](rec)
			}
			return r.Apply(ctx, tx, es)
		})
	}
	return s
}
