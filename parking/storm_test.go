package parking_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/parking"
)

// StormEnv makes TestStorm last so many seconds, and StormSeedEnv repeats one.
const (
	StormEnv     = "HEADRACE_PARKING_STORM"
	StormSeedEnv = "HEADRACE_PARKING_SEED"
)

// harm is what a storm may not do. All are counts.
type harm struct{ twice, outOfOrder, orphans, lost, deadAndEffected, deadWithoutLetter, left, miscounted int64 }

// audit looks at what is durable when everything is drained.
func (w *world) audit(t *testing.T) (h harm) {
	t.Helper()
	h.twice = w.count("select count(*) - count(distinct id) from effects")
	h.outOfOrder = w.count(`select count(*) from (
		select off, max(off) over (partition by key_id order by seq rows between unbounded preceding and 1 preceding) before from effects) e
		where before > off`)
	left := w.count(orphansSQL)
	h.orphans = max(w.orphaned, left)
	h.deadAndEffected = w.count("select count(distinct l.id) from letters l join effects e using (id)")
	h.deadWithoutLetter = w.count(`select count(*) from headrace.inbox i where state = 2
		and not exists (select from letters l where l.id = i.message_id) and (` + w.committedSQL() + ")")
	h.left = w.count("select count(*) from headrace.parked_records") - left
	h.miscounted = w.count("select coalesce(sum(records), 0)::bigint from headrace.parked_counts") - left - h.left
	h.lost = w.lost(t)
	return h
}

// committedSQL picks the inbox rows of records before the committed offsets: those after it are redelivered, and their
// letters written then.
func (w *world) committedSQL() string {
	sql := "false"
	for p := range w.committed {
		sql += fmt.Sprintf(" or coordinates >= %d and coordinates < %d", int64(p)<<32, int64(p)<<32+w.committed[p].Load())
	}
	return sql
}

func (w *world) lost(t *testing.T) (lost int64) {
	t.Helper()
	known := map[uuid.UUID]bool{}
	rows, err := w.pool.Query(t.Context(), `select message_id from headrace.inbox
		union select message_id from headrace.parked_records union select id from letters`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id uuid.UUID
		require.NoError(t, rows.Scan(&id))
		known[id] = true
	}
	require.NoError(t, rows.Err())
	for p := range w.logs {
		for _, r := range w.logs[p][:w.committed[p].Load()] {
			if !known[r.Identity.Key] {
				lost++
			}
		}
	}
	return lost
}

func gale(seed uint64) storm {
	return storm{seed: seed, partitions: 4, records: 4000, keys: 30, fail: 0.03, kill: 0.01, lease: 150 * time.Millisecond}
}

func seed(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv(StormSeedEnv); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, StormSeedEnv)
		return n
	}
	return uint64(time.Now().UnixNano())
}

// TestStorm is the promise of parking under everything that goes wrong at once: each effect once, in the order of its
// key, and nothing lost.
func TestStorm(t *testing.T) {
	s := gale(seed(t))
	most := 5 * time.Second
	if env := os.Getenv(StormEnv); env != "" {
		secs, err := strconv.Atoi(env)
		require.NoError(t, err, StormEnv)
		most, s.records = time.Duration(secs)*time.Second, 4000*max(1, secs/5)
	}
	w := newWorld(t, s)
	w.run(t, most)
	t.Logf("seed %d: %d effects; %s", s.seed, w.count("select count(*) from effects"), &w.seen)
	require.Equal(t, harm{}, w.audit(t), "%s=%d", StormSeedEnv, s.seed)
	require.Positive(t, w.seen.parked.Load())
	require.Positive(t, w.seen.followed.Load())
	require.Positive(t, w.seen.drained.Load())
	require.Positive(t, w.seen.crashes.Load())
}

// TestStormCatches shows that the audit finds what it is for: each of these is a storm on an engine with one line less.
func TestStormCatches(t *testing.T) {
	for _, mutant := range []struct {
		name   string
		change func(*storm)
		caught func(harm) bool
	}{
		{
			"AnAppendThatDoesNotLockItsLine",
			func(s *storm) { s.breakStore = (*parking.Store).BreakAppend },
			func(h harm) bool { return h.orphans > 0 },
		},
		{
			"AFinishThatDoesNotLockItsLine",
			func(s *storm) { s.breakStore = (*parking.Store).BreakFinish },
			func(h harm) bool { return h.orphans > 0 },
		},
		{
			"ADeadLetterWithoutItsRow",
			func(s *storm) { s.noDeadRow, s.kill = true, 0.05 },
			func(h harm) bool { return h.deadAndEffected > 0 || h.outOfOrder > 0 },
		},
		{
			"AKeyThatNobodyAsksFor",
			func(s *storm) { s.ignoreBlocked = true },
			func(h harm) bool { return h.outOfOrder > 0 },
		},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			const tries = 15
			for i := range uint64(tries) {
				s := gale(seed(t) + i)
				s.keys, s.fail, s.records = 6, 0.08, 1000
				mutant.change(&s)
				w := newWorld(t, s)
				w.run(t, 1500*time.Millisecond)
				if h := w.audit(t); mutant.caught(h) {
					t.Logf("caught at try %d: %+v; %s", i+1, h, &w.seen)
					return
				}
			}
			t.Fatalf("%d storms, and nobody noticed", tries)
		})
	}
}
