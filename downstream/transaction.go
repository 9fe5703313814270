package downstream

import (
	"context"
	"errors"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/record"
)

// ErrInTransaction is the error of a call under a context that carries the inbox's transaction, if the dependency refuses
// such calls (Config.RefuseInTransaction).
var ErrInTransaction = errors.New("a call inside the inbox's transaction: it holds locks and a connection for as long as the " +
	"dependency takes, and is made again whenever the transaction is; use a CallRoute, whose Call runs before it")

// transaction looks for the inbox's transaction around a call. It is refused where that is asked for, and counted elsewhere:
// what has worked so far is not to fail in production.
func (d *Dependency) transaction(ctx context.Context) error {
	if dedup.Tx(ctx) == nil && dedup.Pending(ctx) == nil {
		return nil
	}
	d.tell.transaction(record.CallInfo{Dependency: d.cfg.Name})
	if d.cfg.RefuseInTransaction {
		return &refusedInTransaction{d.cfg.Name}
	}
	d.toldTransaction.Do(func() {
		d.tell.report(record.Report{
			Kind: record.ReportCallInTransaction, Err: &refusedInTransaction{d.cfg.Name},
			Hint: "call before the transaction, with a CallRoute; the metric calls_in_transaction_total counts them, this is told once",
		})
	})
	return nil
}

// refusedInTransaction names the dependency.
type refusedInTransaction struct{ dependency string }

func (e *refusedInTransaction) Error() string { return e.dependency + ": " + ErrInTransaction.Error() }

// Unwrap gives ErrInTransaction.
func (e *refusedInTransaction) Unwrap() error { return ErrInTransaction }
