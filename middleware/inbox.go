package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// Inbox is the innermost layer. It hands the records to Route.Inbox, which calls what is inside of this layer (the
// user's middlewares and the handler) once a record, on a message of one, in a transaction: dedup.Tx(msg.Context()). So
// a plain Watermill handler works in a batch of any size, and its effect and the inbox's row are committed together.
//
// Of another Kind, a handler finds a batch to queue in instead (dedup.Pending), or gets a message of all records of a
// group: their middlewares run once a group then. What is promised for one record (its deadline, its span, its part in
// the metrics, its class) holds inside a group too.
//
// Route.Work, where it is set, is called in place of all that, and no message is made for it.
//
// A handler that returns messages fails for good: the Router would publish them outside of the transaction.
func Inbox(rt *Route) message.HandlerMiddleware {
	return rt.layer(inboxLayer, func(handler message.HandlerFunc) message.HandlerFunc {
		work := rt.work(handler)
		return func(msg *message.Message) ([]*message.Message, error) {
			rs, err := record.Records(msg)
			if err != nil {
				return nil, err
			}
			rt.Inbox.Run(msg.Context(), rs, work)
			return nil, nil // the verdicts stand on the records
		}
	})
}

// errEscaped is what an attempt's span ends with when a panic or runtime.Goexit passes through it.
var errEscaped = errors.New("left its handler by a panic or runtime.Goexit")

func (rt *Route) work(handler message.HandlerFunc) dedup.Work {
	switch rt.Kind {
	case dedup.Queued:
		return rt.queue(handler)
	case dedup.Grouped:
		return rt.batch(handler)
	case dedup.Executed:
	}
	return rt.apply(handler)
}

// decided is what is known of r before its handler runs: why it must not.
func (rt *Route) decided(r *record.Record) error {
	if s, ok := r.Event.(skipped); ok {
		return s.err
	}
	if rt.uncalled(r) {
		return errUncalled
	}
	return nil
}

func (rt *Route) apply(handler message.HandlerFunc) dedup.Apply {
	return func(ctx context.Context, tx pgx.Tx, r *record.Record) (err error) {
		if err := rt.decided(r); err != nil {
			return err
		}
		ctx, end := rt.Attempt(ctx, r)
		escaped := true
		defer func() {
			if escaped {
				end(errEscaped)
			} else {
				end(err)
			}
		}()
		err = rt.handle(dedup.WithTx(ctx, tx), tx, r, handler)
		escaped = false
		return err
	}
}

func (rt *Route) handle(ctx context.Context, tx pgx.Tx, r *record.Record, handler message.HandlerFunc) error {
	if apply, ok := rt.Work.(dedup.Apply); ok {
		return apply(record.With(ctx, r), tx, r)
	}
	return handled(handler(record.Single(ctx, r)))
}

func handled(returned []*message.Message, err error) error {
	if err == nil && len(returned) > 0 {
		return errReturned(len(returned))
	}
	return err
}

// errReturned is for a handler that returns messages, which Watermill's Router would publish outside of the
// transaction: after a crash in between they are lost, or sent twice.
func errReturned(n int) error {
	return fault.Permanent(fmt.Errorf("handler returned %d messages, which cannot be part of its transaction: "+
		"publish them with the outbox", n))
}
