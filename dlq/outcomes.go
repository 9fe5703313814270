package dlq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Outcome is what became of a letter's record.
type Outcome string

// The outcomes.
const (
	// OutcomeDead: it is dead, and nothing has happened since.
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
// all. A letter of another system, which names no identity, is unknown.
func Outcomes(ctx context.Context, db Querier, entries []*Entry) ([]Outcome, error) {
	outcomes := slices.Repeat([]Outcome{OutcomeUnknown}, len(entries))
	asked, groups, routes, ids := questions(entries)
	if len(asked) == 0 {
		return outcomes, nil
	}
	rows, err := db.Query(ctx, outcomesSQL, groups, routes, ids)
	if err != nil {
		return nil, fmt.Errorf("ask the inbox for %d letters: %w", len(asked), err)
	}
	var n int64
	var state int16
	_, err = pgx.ForEachRow(rows, []any{&n, &state}, func() error {
		if outcome, ok := outcomeOf[state]; ok {
			outcomes[asked[n-1]] = outcome
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask the inbox for %d letters: %w", len(asked), err)
	}
	return outcomes, nil
}

const outcomesSQL = `
select q.n, i.state
from unnest($1::text[], $2::text[], $3::text[]::uuid[]) with ordinality as q(consumer_group, route, id, n)
join headrace.consumers c on c.consumer_group = q.consumer_group and c.route = q.route
join headrace.inbox i on i.consumer_id = c.id and i.message_id = q.id`

// outcomeOf is by the inbox's states, which package dedup writes.
var outcomeOf = map[int16]Outcome{0: OutcomeEffected, 1: OutcomeSkipped, 2: OutcomeDead}

// questions are the letters that can be asked for, by index, and what to ask.
func questions(entries []*Entry) (asked []int, groups, routes, ids []string) {
	for i, e := range entries {
		env := &e.Envelope
		if env.MessageID == uuid.Nil || !storable(env.Group) || !storable(env.Route) {
			continue
		}
		asked, groups, routes = append(asked, i), append(groups, env.Group), append(routes, env.Route)
		ids = append(ids, inboxID(*env).String())
	}
	return asked, groups, routes, ids
}

// inboxID is by what the inbox knows what became of a record. An id_conflict's own identity is the other record's: its
// own fate is that of the identity which a replay gives it.
func inboxID(env Envelope) uuid.UUID {
	if env.Reason == IDConflict {
		return newID(env)
	}
	return env.MessageID
}

// storable says whether Postgres takes it as text: with anything else it would refuse all.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
