package consumer

import (
	"time"

	"github.com/headrace/headrace/record"
)

// Event is one record as a route's handler sees it. It is valid until the handler returns; what it points to belongs
// to the record and must not be written to.
type Event[T any] struct {
	// Data is the decoded value. It is decoded once a delivery: attempts of one delivery share what it points to.
	Data T
	// ID is the record's identity, the same on every attempt and every redelivery: what the producer wrote, or
	// "topic-id/partition/offset" where it wrote none.
	ID string
	// Key is nil for a record without one.
	Key []byte
	// Headers are in order, with duplicates and nil values.
	Headers []record.Header
	// Topic, Partition and Offset are where the record was read.
	Topic     string
	Partition int32
	Offset    int64
	// Timestamp is the record's own, milliseconds as Kafka stores it.
	Timestamp time.Time
	// Attempt is 1 for the first of this delivery. A redelivery begins at 1 again.
	Attempt int
}

// Header gives the value of the first header with this name, and whether there is one.
func (e Event[T]) Header(name string) ([]byte, bool) {
	for _, h := range e.Headers {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// eventOf makes the event of a record whose value was decoded into a *T.
func eventOf[T any](r *record.Record) Event[T] {
	e := Event[T]{
		ID: r.Identity.ID, Key: r.Key, Headers: r.Headers,
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Timestamp: r.Timestamp, Attempt: r.Attempt(),
	}
	if data, ok := r.Event.(*T); ok {
		e.Data = *data
	}
	return e
}
