package dlq_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// counting counts queries.
type counting struct {
	dlq.Querier
	n int
}

func (c *counting) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.n++
	return c.Querier.Query(ctx, sql, args...)
}

func TestOutcomes_TellWhatBecameOfALettersRecord(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, migrations.Up)
	var consumer int
	require.NoError(t, pool.QueryRow(t.Context(),
		`insert into headrace.consumers (consumer_group, route) values ('billing', 'post') returning id`).Scan(&consumer))
	letter := func(change func(*dlq.Envelope)) *dlq.Entry {
		env := full()
		env.Group, env.Route, env.MessageID = "billing", "post", uuid.New()
		if change != nil {
			change(&env)
		}
		return &dlq.Entry{Format: dlq.FormatHeadrace, Envelope: env}
	}
	row := func(id uuid.UUID, state int) {
		_, err := pool.Exec(t.Context(), `insert into headrace.inbox (consumer_id, message_id, state, value_hash, coordinates) values ($1, $2, $3, 0, 0)`,
			consumer, id, state)
		require.NoError(t, err)
	}
	know := func(e *dlq.Entry, state int) *dlq.Entry {
		row(e.Envelope.MessageID, state)
		return e
	}
	conflict := func(offset int64) *dlq.Entry {
		return letter(func(e *dlq.Envelope) { e.Reason, e.Origin.Offset = dlq.IDConflict, offset })
	}
	// under is by what the inbox knows an id_conflict that died at its place.
	under := func(e *dlq.Entry) uuid.UUID {
		return dedup.KeyAt(e.Envelope.TopicID, e.Envelope.Origin.Partition, e.Envelope.Origin.Offset)
	}
	entries := []*dlq.Entry{
		know(letter(nil), 2),
		know(letter(nil), 0),
		letter(nil),
		know(letter(nil), 1),
		know(letter(func(e *dlq.Envelope) { e.Route = "another" }), 0),
		letter(func(e *dlq.Envelope) { e.MessageID = uuid.Nil }),
		letter(func(e *dlq.Envelope) { e.Group = "b\x00" }),
		letter(func(e *dlq.Envelope) { e.Route = "\xff" }),
		know(conflict(100), 0), // the other record's effect
		know(conflict(101), 0), // and its own row
	}
	row(under(entries[9]), 2)
	at := func(offset int64) func(*dlq.Envelope) {
		return func(e *dlq.Envelope) { e.Reason, e.Origin.Offset = dlq.Undecodable, offset }
	}
	garbage := know(letter(at(102)), 0) // the effect is that of the record whose id it has
	row(under(garbage), 2)
	readLater := letter(at(103)) // nobody could read its identity
	readLater.Envelope.MessageID = under(readLater)
	know(readLater, 3)
	diedAgain := know(letter(at(104)), 0) // its second letter names the identity that was read
	row(under(diedAgain), 3)
	givenNewID := know(conflict(105), 0)
	row(under(givenNewID), 3)
	row(dlq.NewIDAt(givenNewID.Envelope.TopicID, givenNewID.Envelope.Origin.Partition, 105), 1)
	entries = append(entries, garbage, readLater, diedAgain, givenNewID)
	entries = append(entries, entries[1])
	db := &counting{Querier: pool}
	got, err := dlq.Outcomes(t.Context(), db, entries)
	require.NoError(t, err)
	require.Equal(t, []dlq.Outcome{
		"dead", "effected", "unknown", "skipped", "unknown", "unknown", "unknown", "unknown", "unknown", "dead",
		"dead", "duplicate", "effected", "skipped", "effected",
	}, got)
	require.Equal(t, 1, db.n)

	got, err = dlq.Outcomes(t.Context(), db, nil)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, 1, db.n, "nothing to ask")
}

func TestUnknownRoutes_NameWhatAWrongDatabaseDoesNotKnow(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, migrations.Up)
	_, err := pool.Exec(t.Context(), `insert into headrace.consumers (consumer_group, route) values ('billing', 'post')`)
	require.NoError(t, err)
	of := func(group, route string) *dlq.Entry {
		return &dlq.Entry{Envelope: dlq.Envelope{Group: group, Route: route}}
	}
	got, err := dlq.UnknownRoutes(t.Context(), pool, []*dlq.Entry{
		of("billing", "post"), of("billing", "archive"), of("audit", "post"), of("billing", "archive"), of("", ""), of("b\x00", "post"),
	})
	require.NoError(t, err)
	require.Equal(t, []string{"audit/post", "billing/archive"}, got)
	for route, known := range map[string]bool{"post": true, "psot": false, "p\x00": false} {
		found, err := dlq.Directory(pool)(t.Context(), "billing", route)
		require.NoError(t, err)
		require.Equal(t, known, found)
	}
	_, err = dlq.Directory(broken{})(t.Context(), "billing", "post")
	require.ErrorIs(t, err, errBoom)
	got, err = dlq.UnknownRoutes(t.Context(), broken{}, []*dlq.Entry{of("", "")})
	require.NoError(t, err, "there is nothing to ask")
	require.Empty(t, got)
	_, err = dlq.UnknownRoutes(t.Context(), broken{}, []*dlq.Entry{of("a", "b")})
	require.ErrorIs(t, err, errBoom)
}

func TestOutcomes_ADatabaseThatIsAwayIsAnError(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, migrations.Up)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := dlq.Outcomes(ctx, pool, []*dlq.Entry{{Envelope: full()}})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "ask the inbox for 1 letters")

	_, err = dlq.Outcomes(t.Context(), broken{}, []*dlq.Entry{{Envelope: full()}})
	require.ErrorIs(t, err, errBoom)
}

type broken struct{}

func (broken) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, errors.Join(errBoom)
}
