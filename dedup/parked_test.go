package dedup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

// parkedLine names the line of a test's records: those with a domain are of line 1.
func parkedLine(r *record.Record) int64 {
	if r.Domain() != "" {
		return 1
	}
	return 2
}

func TestParked(t *testing.T) {
	t.Parallel()

	t.Run("TheOffsetStoreCannotPark", func(t *testing.T) {
		t.Parallel()
		err := RouteConfig{Group: "g", Name: "r", Store: ByOffset, ParkedKey: parkedLine}.validate()
		require.ErrorContains(t, err, "cannot park")
	})

	for _, way := range []string{"inbox", "inbox_by_COPY"} {
		t.Run(way, testParked)
	}
}

func testParked(t *testing.T) {
	t.Parallel()
	b, o := newBench(t, setup{route: RouteConfig{ParkedKey: parkedLine}}), newOwner()
	known := rec(o, 9, "a")
	b.run([]*record.Record{known}, effect)
	dead := rec(o, 8, "a")
	b.bury(dead, "permanent")
	_, err := b.pool.Exec(t.Context(), "insert into headrace.parked_keys (consumer_id, key_id, due) values ($1, 1, now() + interval '1 hour')", b.rt.consumer)
	require.NoError(t, err)

	delivered := rec(o, 1, "a")
	delivered.Parked = "parking delivers it"
	behind, other := rec(o, 2, "a"), rec(o, 3, "")
	again, deadAgain := rec(newOwner(), 9, "a"), rec(o, 8, "a")
	answers, err := b.rt.Look(t.Context(), []*record.Record{delivered, behind, other, again, deadAgain})
	require.NoError(t, err)
	require.Equal(t, []Answer{Fresh, Blocked, Fresh, Own, DeadOwn}, answers)

	b.run([]*record.Record{behind, other}, effect)
	require.ErrorIs(t, behind.Err, ErrParked)
	require.Equal(t, record.Effected, other.Outcome())
	b.run([]*record.Record{again}, effect)
	require.Equal(t, record.Effected, again.Outcome(), "what the inbox knows waits for nobody")
	b.run([]*record.Record{deadAgain}, effect)
	require.ErrorIs(t, deadAgain.Err, ErrDead)
	b.run([]*record.Record{delivered}, effect)
	require.Equal(t, record.Effected, delivered.Outcome())

	var rows, effects int
	require.NoError(t, b.pool.QueryRow(t.Context(), "select (select count(*) from headrace.inbox), (select count(*) from eff)").Scan(&rows, &effects))
	require.Equal(t, 4, rows, "9, 8, 3 and 1; of the blocked one there is none")
	require.Equal(t, 3, effects)

	_, err = b.pool.Exec(t.Context(), "delete from headrace.parked_keys")
	require.NoError(t, err)
	b.run([]*record.Record{behind}, effect)
	require.Equal(t, record.Effected, behind.Outcome())
}
