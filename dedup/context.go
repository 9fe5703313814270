package dedup

import (
	"context"

	"github.com/jackc/pgx/v5"
)

type (
	txKey      struct{}
	pendingKey struct{}
	afterKey   struct{}
)

// Tx is the transaction in which a handler's writes belong: the one that also writes the record's inbox row. It is nil
// outside of a handler that runs inside the inbox, and in one whose effects are queued.
//
// It cannot COMMIT or ROLLBACK (an error says so); tx.Begin makes a savepoint. It must not be used after the handler has
// returned.
func Tx(ctx context.Context) pgx.Tx {
	tx, _ := ctx.Value(txKey{}).(pgx.Tx)
	return tx
}

// WithTx makes tx the transaction that Tx finds. The context that an Apply or a Batch gets has it already, and stays as it is.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	if Tx(ctx) == tx {
		return ctx
	}
	return context.WithValue(ctx, txKey{}, tx)
}

// Pending is what a handler whose effects are queued adds its statements to. It is nil outside of such a handler. What
// is queued after the handler has returned is lost.
func Pending(ctx context.Context) *pgx.Batch {
	b, _ := ctx.Value(pendingKey{}).(*pgx.Batch)
	return b
}

// WithPending makes b the batch that Pending finds. The context that a Queue gets has it already, and stays as it is.
func WithPending(ctx context.Context, b *pgx.Batch) context.Context {
	if Pending(ctx) == b {
		return ctx
	}
	return context.WithValue(ctx, pendingKey{}, b)
}

// AfterAttempt has f called once, from any goroutine, with what the attempt of a handler whose effects are queued came
// to: that is known only when its statements were answered. It is false outside of such a handler.
func AfterAttempt(ctx context.Context, f func(error)) bool {
	a, _ := ctx.Value(afterKey{}).(*attempt)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finished = append(a.finished, f)
	return true
}
