package dedup

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// rows are what the offset store has of the bench's route.
func (b *workbench) offsetRows() map[partition]storedOffsets {
	b.t.Helper()
	rows, err := b.pool.Query(context.Background(), "select topic_id, part, epoch, low, done, graves, leader_epoch, top, top_epoch from headrace.offsets where consumer_id = $1",
		b.rt.consumer)
	require.NoError(b.t, err)
	all := map[partition]storedOffsets{}
	for rows.Next() {
		var at partition
		_, row, err := scanOffsets(withHead{rows, []any{&at.topic, &at.n}})
		require.NoError(b.t, err)
		all[at] = row
	}
	require.NoError(b.t, rows.Err())
	return all
}

// withHead scans columns of its own before those that are asked for.
type withHead struct {
	row  pgx.Row
	head []any
}

func (h withHead) Scan(dest ...any) error { return h.row.Scan(append(h.head, dest...)...) }

// beside says that so many records are done without an effect, which only offsets count.
func (b *workbench) beside(n int) {
	if b.rt.cfg.Store == ByOffset {
		b.others = n
	}
}

// each is v's value for the store of the test.
func each[T any](t *testing.T, byID, byOffset T) T {
	t.Helper()
	if storeOf(t) == ByOffset {
		return byOffset
	}
	return byID
}

// count is how many offsets from 0 on are done.
func (s storedOffsets) count() int {
	n := s.low
	for _, r := range s.done {
		n += r.to - r.from
	}
	return int(n)
}

func (s storedOffsets) has(offset int64) bool { return offset < s.low || s.done.has(offset) }

// requireOffsets is the invariant of an offset store: what is done had its effect once, and nothing else had one.
func (b *workbench) requireOffsets(effects int) {
	b.t.Helper()
	rows, err := b.pool.Query(context.Background(), "select n from eff")
	require.NoError(b.t, err)
	ns, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(b.t, err)
	require.Len(b.t, ns, effects, "effects")
	distinct := map[int64]bool{}
	replayed := query[int](b, "select count(*) from headrace.inbox where state = 0")
	parts, elsewhere := b.offsetRows(), 0
	for _, n := range ns {
		distinct[n] = true
		known := false
		for _, row := range parts {
			known = known || row.has(n)
		}
		if !known {
			elsewhere++
		}
	}
	require.LessOrEqual(b.t, elsewhere, replayed, "effects of what is not done in %v, nor a replay", parts)
	require.Len(b.t, distinct, effects, "distinct effects")
	done := 0
	for _, row := range parts {
		done += row.count()
	}
	require.Equal(b.t, effects+b.others, done+replayed, "done offsets in %v", parts)
}
