package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// TestQueue_WhoseFunctionFailsWhenItRunsAgainHasNoEffect: a record fails, those before it run again, and there a function
// for a result fails, of which the server knows nothing.
func TestQueue_WhoseFunctionFailsWhenItRunsAgainHasNoEffect(t *testing.T) {
	t.Parallel()
	eachStore(t, testQueueWhoseFunctionFailsWhenItRunsAgain)
	t.Run("savepoints_on_the_way", testQueueWhoseFunctionFailsWhenItRunsAgain)
}

func testQueueWhoseFunctionFailsWhenItRunsAgain(t *testing.T) {
	t.Parallel()
	fails := map[string]func() error{
		"ReturnsAnError": func() error { return errBoom },
		"Panics":         func() error { panic(errBoom) },
		"Skips":          func() error { return fault.Skip("not for us") },
	}
	for name, fail := range fails {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := range 7 {
				b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
				rs, runs := recs(newOwner(), 20), 0
				b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
					_ = queueEffect(ctx, pending, r)
					switch int(r.Offset) {
					case at:
						pending.Queue("select 1").Exec(func(pgconn.CommandTag) error {
							if runs++; runs == 2 {
								return fail()
							}
							return nil
						})
					case 7:
						pending.Queue("select 1/0")
					}
					return nil
				}))
				require.Equal(t, 2, runs)
				require.Equal(t, 18, query[int](b, "select count(*) from eff"), "at %d", at)
				require.Zero(t, query[int](b, "select count(*) from eff where n in ($1, 7)", at))
				require.Equal(t, 18, query[int](b, "select count(distinct n) from eff"))
				require.ErrorContains(t, rs[7].Err, "division by zero")
				if name == "Skips" {
					requireOutcomes(t, record.Skipped, rs[at])
					b.beside(1)
				} else {
					require.ErrorIs(t, rs[at].Err, errBoom)
				}
				requireOutcomes(t, record.Effected, without(without(rs, 7), at)...)
				b.requireLedger(18)
			}
		})
	}
}

// TestQueue_MixedFailuresComeToTheEffectsOfOneRecordATransaction: some records look at results and some do not, and fail in
// either way, in their first run or in a later one.
func TestQueue_MixedFailuresComeToTheEffectsOfOneRecordATransaction(t *testing.T) {
	t.Parallel()
	eachTrip(t, testQueueMixedFailures)
}

func testQueueMixedFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
	for seed := range uint64(60) {
		b.exec("truncate eff, headrace.inbox, headrace.offsets")
		rng, o := rand.New(rand.NewPCG(seed, 0)), newOwner()
		rs, scripts := make([]*record.Record, 40), make([]script, 40)
		for i := range rs {
			rs[i], scripts[i] = rec(o, i, [...]string{"", "", "a", "b"}[rng.IntN(4)]), newScript(rng)
		}
		b.runWork(rs, Queue(func(_ context.Context, pending *pgx.Batch, r *record.Record) error {
			scripts[r.Offset].queue(pending, r)
			return nil
		}))
		b.requireAsAlone(rs, scripts, seed)
	}
}

// script is what a record's statements come to, each time they run; the last one stays.
type script struct {
	results []error // of the function for a result, none: nobody looks at one
	fails   bool    // at the server
	runs    int
}

func newScript(rng *rand.Rand) (s script) {
	s.fails = rng.IntN(15) == 0
	for range rng.IntN(4) {
		s.results = append(s.results, [...]error{nil, nil, nil, nil, errBoom, fault.Skip("not for us")}[rng.IntN(6)])
	}
	return s
}

// queue has the effect tell how many stood before it.
func (s *script) queue(pending *pgx.Batch, r *record.Record) {
	pending.Queue("insert into eff (n, note) select $1, count(*)::text from eff", r.Offset)
	if len(s.results) > 0 {
		pending.Queue("select 1").Exec(func(pgconn.CommandTag) error {
			s.runs++
			return s.last()
		})
	}
	if s.fails {
		pending.Queue("select 1/0")
	}
}

func (s *script) last() error {
	if len(s.results) == 0 {
		return nil
	}
	return s.results[min(max(s.runs, 1), len(s.results))-1]
}

// requireAsAlone is the oracle: each record has what its last run came to, those of its key behind one that failed did not
// run (or had failed before that one did), and the effects are of the others, in the order of each key, and stand on nothing
// else.
func (b *workbench) requireAsAlone(rs []*record.Record, scripts []script, seed uint64) {
	b.t.Helper()
	want := map[string][]int{}
	failed, skips, effects := map[string]bool{}, 0, 0
	for i, r := range rs {
		err, key := scripts[i].last(), r.Domain()
		_, skip := fault.AsSkip(err)
		switch {
		case key != "" && failed[key] && (errors.Is(r.Err, record.ErrNotRun) || err == nil && !scripts[i].fails):
			require.ErrorIs(b.t, r.Err, record.ErrNotRun, "seed %d, %d", seed, i)
		case skip:
			require.Equal(b.t, record.Skipped, r.Outcome(), "seed %d, %d: %v", seed, i, r.Err)
			skips++
		case err != nil || scripts[i].fails:
			require.True(b.t, charged(r), "seed %d, %d: %v", seed, i, r.Err)
			failed[key] = true
		default:
			require.Equal(b.t, record.Effected, r.Outcome(), "seed %d, %d: %v", seed, i, r.Err)
			want[key] = append(want[key], i)
			effects++
		}
	}
	got := map[string][]int{}
	for before, line := range strings.Fields(query[string](b,
		"select coalesce(string_agg(n || ':' || note, ' ' order by note::int, n), '') from eff")) {
		var n, stood int
		_, err := fmt.Sscanf(line, "%d:%d", &n, &stood)
		require.NoError(b.t, err)
		require.Equal(b.t, before, stood, "seed %d, %d stands on what was undone", seed, n)
		got[rs[n].Domain()] = append(got[rs[n].Domain()], n)
	}
	slices.Sort(got[""]) // they depend on nobody
	require.Equal(b.t, want, got, "seed %d", seed)
	b.beside(skips)
	b.requireLedger(effects)
}
