package idempotency

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrNotUnknown reports a key that is not unknown any more, or is again, of a later run: somebody else has found out or
// decided, and what was found out of the earlier run says nothing of it. Match with errors.Is.
var ErrNotUnknown = errors.New("idempotency: the key is not unknown, or a later run of it is")

// UnknownKey is a key of External of which nobody knows whether it was done.
type UnknownKey struct {
	Key
	// Run is what is decided of. A key that runs again has another one.
	Run uuid.UUID
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
		err = row.Scan(&u.Route, &u.Method, &u.Principal, &u.Key.Key, &u.Run, &u.StartedAt, &u.Since, &u.Note)
		return u, err
	})
}

// ResolveDone says that the unknown run u of a key was done, and what the key's requests are answered from now on: as
// much of u as Key and Run is needed. It is ErrNotUnknown for a run that is not unknown any more.
func (k *Keys) ResolveDone(ctx context.Context, u UnknownKey, a Answer) error {
	if err := a.Validate(); err != nil {
		return err
	}
	if a.Header = a.Header.Clone(); a.Header == nil {
		a.Header = http.Header{}
	}
	return k.resolve(ctx, k.sql.done, u.args(append([]any{u.Run}, append(k.columns(a.withType()), uuid.New())...)...))
}

// ResolveNotDone says that the unknown run u of a key was not done and will not be: the key's next request runs. As much
// of u as Key and Run is needed. It is ErrNotUnknown for a run that is not unknown any more.
func (k *Keys) ResolveNotDone(ctx context.Context, u UnknownKey) error {
	return k.resolve(ctx, k.sql.notDone, u.args(u.Run))
}

func (k *Keys) resolve(ctx context.Context, sql string, args []any) error {
	tag, err := k.pool.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrNotUnknown
	}
	return err
}
