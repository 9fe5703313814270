package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

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
