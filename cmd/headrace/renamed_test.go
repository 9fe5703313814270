package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// A route that is renamed leaves letters behind that name nobody: they are replayed to its new name, and a name that the
// database has never seen is no destination.
func TestReplay_LettersOfARenamedRouteGoToItsNewName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startWith(w.route("old-name"))
	w.die("order-1", "unknown")
	w.die("order-2", "unknown")
	stop()
	w.healthy.Store(true)
	w.startWith(w.route("charge-order"))
	require.Eventually(t, func() bool {
		known, err := dlq.Directory(w.pool)(t.Context(), "billing", "charge-order")
		return err == nil && known
	}, patience, 10*time.Millisecond)

	r := w.run("dlq", "replay", "--topic", "orders.dlq", "--route", "old-name", "--to-route", "chrage-order", "--yes", "--dsn", w.dsn)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `knows no route "chrage-order" of consumer group "billing"`)
	require.Empty(t, w.replayed())

	w.ok("dlq", "replay", "--topic", "orders.dlq", "--route", "old-name", "--to-route", "charge-order", "--yes", "--dsn", w.dsn)
	require.Equal(t, map[record.Outcome]int{record.Effected: 2}, w.outcomes(2))
	w.requireEffects(2)
	for _, args := range [][]string{nil, {"--route", "a,b"}} {
		r = w.run(append([]string{"dlq", "replay", "--topic", "orders.dlq", "--to-route", "x", "--yes"}, args...)...)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "--to-route")
	}
}
