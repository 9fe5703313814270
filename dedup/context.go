package dedup

import (
	"context"

	"github.com/jackc/pgx/v5"
)

type txKey struct{}

// Tx is the transaction in which a handler's writes belong: the one that also writes the record's inbox row. It is nil
// outside of a handler that runs inside the inbox.
//
// It cannot COMMIT or ROLLBACK (an error says so); tx.Begin makes a savepoint. It must not be used after the handler has
// returned.
func Tx(ctx context.Context) pgx.Tx {
	tx, _ := ctx.Value(txKey{}).(pgx.Tx)
	return tx
}

// WithTx makes tx the transaction that Tx finds. The context that an Apply gets has it already, and stays as it is.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	if Tx(ctx) == tx {
		return ctx
	}
	return context.WithValue(ctx, txKey{}, tx)
}
