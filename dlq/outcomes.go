package dlq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
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
	// OutcomeDuplicate: it died because it could not be read, and a replay found under the identity that it turned out to
	// have that it was dealt with, or dealt with it. The letter does not know that identity.
	OutcomeDuplicate Outcome = "duplicate"
	// OutcomeUnknown: the inbox does not know it: it is another consumer's database, or the row's retention is over. So it
	// is of every letter of another system, which names no identity.
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
	q := ask(entries)
	if len(q.of) == 0 {
		return outcomes, nil
	}
	rows, err := db.Query(ctx, outcomesSQL, q.groups, q.routes, q.ids, q.numbers)
	if err != nil {
		return nil, fmt.Errorf("ask the inbox for %d letters: %w", len(entries), err)
	}
	var n int32
	var state int16
	_, err = pgx.ForEachRow(rows, []any{&n, &state}, func() error {
		at := &outcomes[q.of[n]]
		if outcome, ok := outcomeOf[state]; ok && (outcome != OutcomeDuplicate || *at == OutcomeUnknown) {
			*at = outcome
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask the inbox for %d letters: %w", len(entries), err)
	}
	return outcomes, nil
}

// What is asked more than once of a letter is answered in the order of the questions: the last answer counts, but for a
// duplicate, which says that another row knows better.
const outcomesSQL = `
select q.n, i.state
from unnest($1::text[], $2::text[], $3::text[]::uuid[], $4::int[]) as q(consumer_group, route, id, n)
join headrace.consumers c on c.consumer_group = q.consumer_group and c.route = q.route
join headrace.inbox i on i.consumer_id = c.id and i.message_id = q.id
order by q.n`

// outcomeOf is by the inbox's states, which package dedup writes.
var outcomeOf = map[int16]Outcome{0: OutcomeEffected, 1: OutcomeSkipped, 2: OutcomeDead, 3: OutcomeDuplicate}

// questions are what to ask, column by column, and of which letter each question is, by index.
type questions struct {
	groups, routes, ids []string
	numbers             []int32
	of                  []int
}

func ask(entries []*Entry) (q questions) {
	for i, e := range entries {
		env := &e.Envelope
		if env.MessageID == uuid.Nil || !storable(env.Group) || !storable(env.Route) {
			continue
		}
		for _, id := range inboxIDs(env) {
			q.groups, q.routes, q.ids = append(q.groups, env.Group), append(q.routes, env.Route), append(q.ids, id.String())
			q.numbers, q.of = append(q.numbers, int32(len(q.of))), append(q.of, i) //nolint:gosec // a page of letters
		}
	}
	return q
}

// inboxIDs are by what the inbox knows what became of a record, the last word last. One whose identity was another
// record's died under its place, whatever its letter gives as the reason. Of an id_conflict the identity is never its own,
// and what it came to after that is known by the one which a replay gives it.
func inboxIDs(env *Envelope) []uuid.UUID {
	place := dedup.KeyAt(env.TopicID, env.Origin.Partition, env.Origin.Offset)
	switch {
	case env.Reason == IDConflict:
		return []uuid.UUID{place, newID(*env)}
	case env.MessageID == place:
		return []uuid.UUID{place}
	}
	return []uuid.UUID{env.MessageID, place}
}

// UnknownRoutes gives those routes of letters that the database knows nothing of, as "group/route", in order and each
// once: no consumer with them has ever run there, so the outcome of all their letters is OutcomeUnknown. It is a sign of
// a wrong database.
func UnknownRoutes(ctx context.Context, db Querier, entries []*Entry) ([]string, error) {
	var groups, routes []string
	for _, e := range entries {
		if env := &e.Envelope; env.Group != "" && env.Route != "" && storable(env.Group) && storable(env.Route) {
			groups, routes = append(groups, env.Group), append(routes, env.Route)
		}
	}
	if len(groups) == 0 {
		return nil, nil
	}
	rows, err := db.Query(ctx, unknownRoutesSQL, groups, routes)
	if err != nil {
		return nil, fmt.Errorf("ask for the routes of %d letters: %w", len(entries), err)
	}
	unknown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("ask for the routes of %d letters: %w", len(entries), err)
	}
	return unknown, nil
}

const unknownRoutesSQL = `
select distinct q.consumer_group || '/' || q.route as name
from unnest($1::text[], $2::text[]) as q(consumer_group, route)
where not exists (select from headrace.consumers c where c.consumer_group = q.consumer_group and c.route = q.route)
order by name`

// storable says whether Postgres takes it as text: with anything else it would refuse all.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
