package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/internal/backoff"
)

// External runs h once a key, for effects that are not in the database: the key's row is committed before h runs, and
// finished after. It is never taken over by time. A key whose run did not finish within two Timeouts, panicked, or was
// answered 5xx is unknown: its requests are answered 409 until reconcile, which may be nil, or an operator
// ([Keys.ResolveDone], [Keys.ResolveNotDone]) says what became of it.
//
// The route's name is permanent: keys are remembered by it. External panics if the route has no name, or the name of
// another one.
func (k *Keys) External(route string, h http.Handler, reconcile Reconcile) http.Handler {
	return k.handler(route, h, func(c *call) reply { return k.outside(c, reconcile) })
}

var (
	errTakenOver = errors.New("the key was resolved while its handler was still running")
	errLate      = errors.New("the claim took as long as its handler may run: it was not run")
)

func (k *Keys) outside(c *call, reconcile Reconcile) reply {
	token := uuid.New()
	claimed, began, r, err := k.claim(c, token)
	switch {
	case err != nil:
		return k.failed(err)
	case claimed:
		return k.runOutside(c, token, began)
	case r == nil: // freed since
		return k.inProgress()
	}
	rep := k.known(c, r)
	if rep.outcome == Unknown && reconcile != nil {
		return k.reconcile(c, r.token, reconcile)
	}
	return rep
}

// claim writes the row, or gives the one that is there. The wait for a connection is the client's; once there is one the
// client is out of it, because a claim that nobody hears of leaves a row that nobody runs under. A run's time begins when
// its claim is sent.
func (k *Keys) claim(c *call, token uuid.UUID) (claimed bool, began time.Time, r *row, err error) {
	wait, cancel := context.WithTimeout(c.request.Context(), k.cfg.Timeout)
	defer cancel()
	conn, err := k.pool.Acquire(wait)
	if err != nil {
		return false, began, nil, err
	}
	ctx, cancel := c.detached(finishTimeout)
	defer cancel()
	began = time.Now()
	tag, err := conn.Exec(ctx, k.sql.claim, c.key.args(c.fingerprint, token)...)
	conn.Release()
	if err != nil {
		k.free(c, token) // the row may be there
		return false, began, nil, err
	}
	if tag.RowsAffected() == 1 {
		return true, began, nil, nil
	}
	r, err = k.rowOf(ctx, c.key)
	return false, began, r, err
}

func (k *Keys) rowOf(ctx context.Context, key Key) (*row, error) {
	rows, err := k.pool.Query(ctx, k.sql.look, key.args()...)
	if err != nil {
		return nil, err
	}
	return scanRow(rows)
}

// runOutside gives the handler until a Timeout after began, when its claim was sent: the row is older than that by
// nothing, so a handler that heeds its context is over a whole Timeout before anybody may ask what became of it. Had it a
// Timeout from here on: the reply to the claim is held up -> the key is unknown -> Reconcile finds nothing, and it is run ->
// the reply comes, and it is run beside that.
func (k *Keys) runOutside(c *call, token uuid.UUID, began time.Time) reply {
	ctx, cancel := c.detached(time.Until(began.Add(k.cfg.Timeout)))
	defer cancel()
	if ctx.Err() != nil {
		k.free(c, token)
		return k.failed(errLate)
	}
	returned := false
	defer func() {
		if !returned {
			k.leave(c, token, "the handler panicked")
		}
	}()
	run := &run{key: c.key}
	b := c.execute(ctx, run, k.cfg.MaxBytes)
	returned = true
	return k.settle(c, token, b, run.forgotten.Load())
}

// settle writes down what the handler's answer means for the key.
func (k *Keys) settle(c *call, token uuid.UUID, b *buffer, forgotten bool) reply {
	a := b.answer()
	switch {
	case b.over && forgotten:
		k.free(c, token)
		return tooLarge(Released)
	case b.over:
		k.leave(c, token, fmt.Sprintf("it was answered %d with more than %d bytes", a.Status, k.cfg.MaxBytes))
		return tooLarge(Unknown)
	case forgotten, !final(a.Status) && a.Status < http.StatusInternalServerError:
		k.free(c, token)
		return reply{outcome: Released, answer: a}
	case !final(a.Status):
		note := fmt.Sprintf("it was answered %d", a.Status)
		k.leave(c, token, note)
		return reply{outcome: Unknown, answer: a, err: errors.New(note)}
	}
	changed, err := k.persist(c, k.sql.finish, c.key.args(append([]any{token}, k.columns(a)...)...))
	switch {
	case err != nil: // the client is told the truth; a repeat will find the key unknown
		return reply{outcome: Lost, answer: a, err: fmt.Errorf("store the answer of %s: %w", c.key, err)}
	case changed == 0:
		return lost(errTakenOver)
	}
	return reply{outcome: Executed, answer: a}
}

// columns are an answer's.
func (k *Keys) columns(a Answer) []any {
	return []any{int16(a.Status), encodeHeader(a.Header, k.stored), a.Body} //nolint:gosec // three digits
}

// free gives the key back: nothing was done. If it cannot be, the key is unknown after its deadline.
func (k *Keys) free(c *call, token uuid.UUID) {
	if _, err := k.persist(c, k.sql.free, c.key.args(token)); err != nil {
		k.cfg.Logger.Error("idempotency: a key that is free will be unknown", "key", c.key.String(), "error", k.redacted(err))
	}
}

// leave makes the key unknown now.
func (k *Keys) leave(c *call, token uuid.UUID, why string) {
	if _, err := k.persist(c, k.sql.leave, c.key.args(token, why)); err != nil {
		k.cfg.Logger.Error("idempotency: a key will be unknown at its deadline only", "key", c.key.String(), "why", why, "error", k.redacted(err))
	}
}

// persist executes what may be executed again, until it is answered or finishTimeout is over: what a handler has done
// elsewhere is worth some patience, because what is not written down costs somebody a night.
func (k *Keys) persist(c *call, sql string, args []any) (changed int64, err error) {
	ctx, cancel := c.detached(finishTimeout)
	defer cancel()
	const longest = time.Second
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, longest) {
		tag, err := k.attempt(ctx, sql, args)
		if err == nil || permanent(err) || !backoff.Wait(ctx, wait) {
			return tag.RowsAffected(), err
		}
	}
}

// attempt leaves time for another one.
func (k *Keys) attempt(ctx context.Context, sql string, args []any) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout/3)
	defer cancel()
	return k.pool.Exec(ctx, sql, args...)
}

// permanent: the table is not what it should be, for example.
func permanent(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !passes(pg.Code)
}
