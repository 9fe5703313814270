package idempotency

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// FoundKey is a key that has a row.
type FoundKey struct {
	Key
	// Run is what ResolveDone and ResolveNotDone decide of, if it is unknown.
	Run uuid.UUID
	// State is in_progress, unknown or finished.
	State string
	// StartedAt is when its request came, by the database's clock; FinishedAt is zero for one that is not.
	StartedAt, FinishedAt time.Time
	// Deadline is when one in progress becomes unknown, or since when it is; zero for a finished one.
	Deadline time.Time
	// Note says why it is unknown, if anybody knows.
	Note string
	// Answer is that of a finished one.
	Answer Answer
}

// The states of a FoundKey.
const (
	StateInProgress = "in_progress"
	StateUnknown    = "unknown"
	StateFinished   = "finished"
)

// Find gives the keys with this header value, whosever they are, at most limit of them. The names of of's fields that are
// not "" narrow it down; without the route it reads the whole table. A key of Tx that runs has no row yet.
func (k *Keys) Find(ctx context.Context, of Key, limit int) ([]FoundKey, error) {
	rows, err := k.pool.Query(ctx, k.sql.find, of.args(limit)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f FoundKey, err error) {
		var status *int16
		var header []byte
		var deadline, finished *time.Time
		var past bool
		err = row.Scan(&f.Route, &f.Method, &f.Principal, &f.Key.Key, &f.Run, &status, &header, &f.Answer.Body, &f.Note, &f.StartedAt, &deadline, &finished, &past)
		if err != nil {
			return f, err
		}
		f.State = StateInProgress
		if past {
			f.State = StateUnknown
		}
		if deadline != nil {
			f.Deadline = *deadline
		}
		if status == nil {
			return f, nil
		}
		f.State, f.Answer.Status = StateFinished, int(*status)
		if finished != nil {
			f.FinishedAt = *finished
		}
		f.Answer.Header, err = decodeHeader(header)
		return f, err
	})
}
