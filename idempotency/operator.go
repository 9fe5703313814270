package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrNotUnknown reports a key that is not unknown: it is free, in progress or finished. Match with errors.Is.
var ErrNotUnknown = errors.New("idempotency: the key is not unknown")

// UnknownKey is a key of External of which nobody knows whether it was done.
type UnknownKey struct {
	Key
	// StartedAt is when its handler began, by the database's clock.
	StartedAt time.Time
	// Since is when it became unknown.
	Since time.Time
	// Note says why; "" if its owner was not heard of again.
	Note string
}

// Unknown lists keys that wait for [Keys.ResolveDone] or [Keys.ResolveNotDone], those that wait longest first, at most
// limit of them.
func (k *Keys) Unknown(ctx context.Context, limit int) ([]UnknownKey, error) {
	rows, err := k.pool.Query(ctx, k.sql.unknown, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (u UnknownKey, err error) {
		err = row.Scan(&u.Route, &u.Method, &u.Principal, &u.Key.Key, &u.StartedAt, &u.Since, &u.Note)
		return u, err
	})
}

// ResolveDone says that an unknown key was done, and what its requests are answered from now on. It is ErrNotUnknown for
// any other key.
func (k *Keys) ResolveDone(ctx context.Context, key Key, a Answer) error {
	if a.Status < 200 || a.Status > 599 || !final(a.Status) {
		return fmt.Errorf("idempotency: an answer %d says \"not now\": give one that is for good, as 201", a.Status)
	}
	if a.Header == nil {
		a.Header = http.Header{}
	}
	return k.resolve(ctx, k.sql.done, key.args(append([]any{uuid.New()}, k.columns(a)...)...))
}

// ResolveNotDone says that an unknown key was not done and will not be by the run that began: the next request with it
// runs. It is ErrNotUnknown for any other key.
func (k *Keys) ResolveNotDone(ctx context.Context, key Key) error {
	return k.resolve(ctx, k.sql.notDone, key.args())
}

func (k *Keys) resolve(ctx context.Context, sql string, args []any) error {
	tag, err := k.pool.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrNotUnknown
	}
	return err
}
