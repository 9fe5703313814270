package idempotency

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx runs h once a key, in a transaction that h finds with the function [Tx]: its writes there and the key's answer are
// committed together, before the answer is sent. The route's name is permanent: keys are remembered by it. Each request
// that runs takes a connection of the pool for as long as h runs.
//
// It panics if the route has no name, or the name of another one.
func (k *Keys) Tx(route string, h http.Handler) http.Handler { return k.handler(route, h, k.inTx) }

var (
	errEnded  = errors.New("the handler has ended the transaction that was its key's too: what it has committed may be done again")
	errSilent = errors.New("a statement of the handler's had failed, and it answered all the same")
)

func (k *Keys) inTx(c *call) reply {
	token := uuid.New()
	tx, err := k.begin(c)
	if err != nil {
		return k.failed(err)
	}
	defer k.end(c, tx) // also when the handler panics
	r, locked, err := k.look(c, tx, token)
	switch {
	case err != nil:
		return k.failed(err)
	case r != nil:
		return k.known(c, r)
	case !locked:
		return k.inProgress()
	}
	ctx, cancel := c.detached(k.cfg.Timeout)
	defer cancel()
	run := &run{key: c.key, tx: handlerTx{tx}}
	b := c.execute(ctx, run, k.cfg.MaxBytes)
	a := b.answer()
	switch {
	case b.over:
		return tooLarge(Released)
	case run.forgotten.Load() || !final(a.Status):
		return reply{outcome: Released, answer: a}
	}
	return k.commit(c, tx, token, a)
}

// begin waits for a connection no longer than its client does.
func (k *Keys) begin(c *call) (pgx.Tx, error) {
	ctx, cancel := context.WithTimeout(c.request.Context(), k.cfg.Timeout)
	defer cancel()
	return k.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: k.sql.begin})
}

// end rolls back what is not committed.
func (k *Keys) end(c *call, tx pgx.Tx) {
	ctx, cancel := c.detached(finishTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // after COMMIT it does nothing; if it fails the connection is closed, which is the same
}

func (k *Keys) look(c *call, tx pgx.Tx, token uuid.UUID) (r *row, locked bool, err error) {
	ctx, cancel := c.detached(finishTimeout)
	defer cancel()
	var batch pgx.Batch
	batch.Queue(lockSQL, c.key.lockNumber(k.cfg.Table), token.String()).QueryRow(func(row pgx.Row) error {
		return row.Scan(&locked, nil)
	})
	batch.Queue(k.sql.look, c.key.args()...).Query(func(rows pgx.Rows) error {
		r, err = scanRow(rows)
		return err
	})
	return r, locked, tx.SendBatch(ctx, &batch).Close()
}

// commit writes the key's row and commits. Nothing of that ends with the client, or with the handler's time.
func (k *Keys) commit(c *call, tx pgx.Tx, token uuid.UUID, a Answer) reply {
	ctx, cancel := c.detached(finishTimeout)
	defer cancel()
	tag, err := tx.Exec(ctx, k.sql.insert, c.key.args(
		c.fingerprint, token, int16(a.Status), encodeHeader(a.Header, k.stored), a.Body, token.String())...) //nolint:gosec // three digits
	switch {
	case isCode(err, "23505"): // the route was External a moment ago, and still is in another process
		return k.inProgress()
	case err != nil:
		return k.notCommitted(err)
	case tag.RowsAffected() == 0:
		return lost(errEnded)
	}
	if err := tx.Commit(ctx); err != nil {
		return k.notKnownCommitted(err)
	}
	return reply{outcome: Executed, answer: a}
}

// notCommitted: COMMIT was not sent, so nothing was done.
func (k *Keys) notCommitted(err error) reply {
	var pg *pgconn.PgError
	switch {
	case isCode(err, "25P02"):
		return refusedByDatabase(errors.Join(errSilent, err))
	case errors.As(err, &pg) && !passes(pg.Code):
		return refusedByDatabase(err)
	}
	return k.failed(err)
}

// notKnownCommitted tells a COMMIT that was refused or not sent from one of which nobody knows. A FATAL may come after
// what it ends was done.
func (k *Keys) notKnownCommitted(err error) reply {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return refusedByDatabase(errors.Join(errSilent, err))
	case errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR":
		return k.notCommitted(err)
	case pgconn.SafeToRetry(err):
		return k.failed(err)
	}
	return lost(err)
}

// passes says that an error of this code may not come again: a conflict, a lock, an idle session's end, a server that is
// full or going down.
func passes(code string) bool {
	for _, class := range []string{"08", "40", "53", "55P03", "57", "58", "25P03", "25P04"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

func isCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
