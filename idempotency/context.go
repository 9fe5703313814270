package idempotency

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

type runKey struct{}

// run is one run of a handler.
type run struct {
	key       Key
	tx        pgx.Tx
	forgotten atomic.Bool
}

func withRun(ctx context.Context, r *run) context.Context { return context.WithValue(ctx, runKey{}, r) }

// Tx is the transaction that a handler's writes belong in: the one that also has the key's row. It is nil outside of a
// handler of [Keys.Tx]. It cannot COMMIT or ROLLBACK (an error says so); tx.Begin makes a savepoint. It must not be used
// after the handler has returned.
func Tx(ctx context.Context) pgx.Tx {
	if r, ok := ctx.Value(runKey{}).(*run); ok {
		return r.tx
	}
	return nil
}

// KeyOf is the key that a handler runs for. One of [Keys.External] hands something made of it on to whatever it calls, so that a
// repetition is harmless there too. It is false outside of a handler.
func KeyOf(ctx context.Context) (Key, bool) {
	if r, ok := ctx.Value(runKey{}).(*run); ok {
		return r.key, true
	}
	return Key{}, false
}

// Forget says that this answer is not the key's: nothing was done, and the next request with the key runs. Of Tx the
// transaction is rolled back. A handler of External says so only if it surely has done nothing, and will not. It does
// nothing outside of a handler.
func Forget(ctx context.Context) {
	if r, ok := ctx.Value(runKey{}).(*run); ok {
		r.forgotten.Store(true)
	}
}

var errNotYours = errors.New("idempotency: the transaction is the key's too, and ends when the handler has returned: " +
	"call idempotency.Forget to roll it back")

// handlerTx is the transaction as a handler sees it.
type handlerTx struct{ pgx.Tx }

var _ pgx.Tx = handlerTx{}

// Commit does nothing but say so.
func (handlerTx) Commit(context.Context) error { return errNotYours }

// Rollback does nothing but say so.
func (handlerTx) Rollback(context.Context) error { return errNotYours }
