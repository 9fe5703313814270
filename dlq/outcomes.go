package dlq

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Outcome is what became of a letter's record.
type Outcome string

// The outcomes.
const (
	// OutcomeDead: nothing since.
	OutcomeDead Outcome = "dead"
	// OutcomeEffected: a replay had its effect.
	OutcomeEffected Outcome = "effected"
	// OutcomeSkipped: its handler said that there is nothing to do.
	OutcomeSkipped Outcome = "skipped"
	// OutcomeUnknown: the inbox does not know it, or no longer.
	OutcomeUnknown Outcome = "unknown"
)

// Querier is what Outcomes needs of the database. *pgxpool.Pool, *pgx.Conn and pgx.Tx are.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Outcomes asks the inbox what became of letters, in their order, with one query. Call it with a page of them, not with
// all.
func Outcomes(ctx context.Context, db Querier, entries []*Entry) ([]Outcome, error) {
	return nil, nil
}
