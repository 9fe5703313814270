package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// queue is for a handler that queues. Its attempt is over when its statements were answered, and so is the span.
func (rt *Route) queue(handler message.HandlerFunc) dedup.Queue {
	return func(ctx context.Context, b *pgx.Batch, r *record.Record) (err error) {
		if err := rt.decided(r); err != nil {
			return err
		}
		within := dedup.WithPending(ctx, b)
		if rt.Tracer != nil {
			spanned, end := rt.Attempt(within, r)
			within = spanned
			if !dedup.AfterAttempt(ctx, end) {
				defer func() { end(err) }()
			}
		}
		if queue, ok := rt.Work.(dedup.Queue); ok {
			return queue(record.With(within, r), b, r)
		}
		return handled(handler(record.Single(within, r)))
	}
}

// batch is for a handler that gets a group. Each record has its attempt's span; the handler runs under the first one's,
// which is linked to the others.
func (rt *Route) batch(handler message.HandlerFunc) dedup.Batch {
	return func(ctx context.Context, tx pgx.Tx, rs []*record.Record) (err error) {
		known := fault.Members{}
		for i, r := range rs {
			if err := rt.decided(r); err != nil {
				known[i] = err
			}
		}
		if len(known) > 0 {
			return known
		}
		ctx, end := rt.attemptAll(dedup.WithTx(ctx, tx), rs)
		escaped := true
		defer func() {
			if escaped {
				err = errEscaped
			}
			end(err)
		}()
		err = rt.handleAll(ctx, tx, rs, handler)
		escaped = false
		return err
	}
}

func (rt *Route) handleAll(ctx context.Context, tx pgx.Tx, rs []*record.Record, handler message.HandlerFunc) error {
	if batch, ok := rt.Work.(dedup.Batch); ok {
		return batch(ctx, tx, rs)
	}
	return handled(handler(record.NewMessage(ctx, rs)))
}
