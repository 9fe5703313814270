package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func TestState(t *testing.T) {
	t.Parallel()

	t.Run("IsWhatTheInboxSays", func(t *testing.T) {
		t.Parallel()
		w := buried(t, 2)
		w.bury(exhausted(77), nil, nil) // of a record that this database has never seen
		states := func(args ...string) map[string]string {
			got := map[string]string{}
			for _, line := range lines(w.ok(append([]string{"dlq", "ls", "--topic", "orders.dlq", "--json"}, args...)...).out) {
				var l letterJSON
				require.NoError(t, json.Unmarshal([]byte(line), &l))
				got[l.ID] = l.State
			}
			return got
		}
		unknown := exhausted(77).MessageID.String()
		require.Equal(t, map[string]string{"order-0": "", "order-1": "", unknown: ""}, states(), "nobody asked")
		require.Equal(t, map[string]string{"order-0": "dead", "order-1": "dead", unknown: "unknown"}, states("--state"))
		require.Contains(t, w.ok("dlq", "show", "--topic", "orders.dlq", "--id", "order-1", "--state").out, "state         dead\n")

		w.ok("dlq", "replay", "--topic", "orders.dlq", "--id", "order-1")
		require.Equal(t, record.Effected, w.next().Outcome)
		require.Equal(t, map[string]string{"order-0": "dead", "order-1": "effected", unknown: "unknown"}, states("--dsn", w.dsn))
		require.Contains(t, w.ok("dlq", "show", "--topic", "orders.dlq", "--id", "order-1", "--state").out, "state         effected\n")
	})

	t.Run("WantsADatabase", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(1)
		r := b.run("dlq", "ls", "--topic", "orders.dlq", "--state")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "set DATABASE_URL")
		r = b.run("dlq", "ls", "--topic", "orders.dlq", "--dsn", "postgres://me:hunter2-secret@127.0.0.1:1/db")
		require.Equal(t, exitFailed, r.code)
		require.NotContains(t, r.err, "hunter2")
	})
}

// Looked up in the wrong database, every letter was "unknown", and nothing said why.
func TestState_AnotherConsumersDatabaseIsToldOnce(t *testing.T) {
	t.Parallel()

	t.Run("WhereNoSuchRouteHasRun", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(3)
		b.env[envDSN] = pgtest.DSN(t, migrations.Up)
		const note = "note: this database has never had a route billing/charge-order, so what became of its records is unknown: is it the consumer's?\n"
		for _, args := range []string{"ls --state", "ls --state --json", "show --state 1/1", "replay --state dead --yes"} {
			r := b.ok(append([]string{"dlq"}, append(strings.Fields(args), "--topic", "orders.dlq")...)...)
			require.Equal(t, note, r.err, args)
		}
		require.Empty(t, b.replayed(), "none is known to be dead")
	})

	t.Run("WhereThereIsNoInbox", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(1)
		b.env[envDSN] = pgtest.DSN(t)
		r := b.run("dlq", "ls", "--topic", "orders.dlq", "--state")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "the database has no inbox: ")
		require.Contains(t, r.err, "fix: check --dsn or DATABASE_URL")
	})
}

// A replay sent 34 letters, and again those 34 that had their effect by then, and said nothing but "sent".
func TestReplay_StateDeadLeavesOutWhatHasHadItsEffect(t *testing.T) {
	t.Parallel()
	w := buried(t, 3)
	w.ok("dlq", "replay", "--topic", "orders.dlq", "--id", "order-1")
	require.Equal(t, record.Effected, w.next().Outcome)

	r := w.ok("dlq", "replay", "--topic", "orders.dlq", "--dry-run", "--dsn", w.dsn)
	require.Contains(t, r.out, "would send  3")
	require.Contains(t, r.err, "1 of the records had their end before: they settle as duplicates, without another effect; --state dead leaves them out\n")

	r = w.ok("dlq", "replay", "--topic", "orders.dlq", "--dry-run", "--state", "dead")
	require.Contains(t, r.out, "permanent  its record is effected\n")
	r = w.ok("dlq", "replay", "--topic", "orders.dlq", "--yes", "--state", "dead")
	require.Contains(t, r.out, "matched  3\nsent     2  2 to orders.billing.replay\nskipped  1  1 effected\n")
	require.Empty(t, r.err)
	require.Equal(t, map[record.Outcome]int{record.Effected: 2}, w.outcomes(2))
	w.requireEffects(3)

	env := exhausted(9) // a contradiction that has had its own effect is not waiting for --new-id
	env.Reason = dlq.IDConflict
	w.bury(env, nil, nil)
	_, err := w.pool.Exec(t.Context(), `insert into headrace.inbox (consumer_id, message_id, state, value_hash, coordinates)
		select id, $1, 0, 0, 0 from headrace.consumers`, dlq.NewIDAt(env.TopicID, env.Origin.Partition, env.Origin.Offset))
	require.NoError(t, err)

	w.terminal = true
	w.typed = readerFunc(func([]byte) (int, error) { require.Fail(t, "there is nothing to ask"); return 0, io.EOF })
	r = w.ok("dlq", "replay", "--topic", "orders.dlq", "--state", "dead")
	require.Contains(t, r.out, "skipped  4  4 effected\n")
}
