package dedup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// A record whose key fails for ever is tried again and again beside records that are well. From its first failure on
// nothing of those is undone for it.
func TestFailingKeys_OthersRunOnceBesideThem(t *testing.T) {
	t.Parallel()
	eachStore(t, testFailingKeys)
}

func testFailingKeys(t *testing.T) {
	t.Parallel()
	const insert = `insert into eff (n, note) select $1, nextval('runs')::text`
	works := map[string]func(fails func(*record.Record) bool) Work{
		"Executed": func(fails func(*record.Record) bool) Work {
			return Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
				if _, err := tx.Exec(ctx, insert, r.Offset); err != nil || !fails(r) {
					return err
				}
				return fault.Transient(errBoom)
			})
		},
		"Queued": func(fails func(*record.Record) bool) Work {
			return Queue(func(_ context.Context, pending *pgx.Batch, r *record.Record) error {
				pending.Queue(insert, r.Offset)
				if fails(r) {
					pending.Queue("select 1/0")
				}
				return nil
			})
		},
		"Grouped": func(fails func(*record.Record) bool) Work {
			return Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) (failed error) {
				for _, r := range rs {
					if _, err := tx.Exec(ctx, insert, r.Offset); err != nil {
						return err
					}
					if fails(r) {
						failed = fault.Transient(errBoom) // of whom, nobody says
					}
				}
				return failed
			})
		},
	}
	for name, work := range works {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
			b.exec("create sequence runs")
			for seed := range uint64(10) {
				b.exec("truncate eff, headrace.inbox, headrace.offsets")
				f := &failingKeys{b: b, rng: rand.New(rand.NewPCG(seed, 0)), o: newOwner(), bad: map[string]bool{}}
				f.round(work, seed)
			}
		})
	}
}

type failingKeys struct {
	b   *workbench
	rng *rand.Rand
	o   *owner
	bad map[string]bool
	n   int // records so far
}

func (f *failingKeys) fails(r *record.Record) bool { return f.bad[r.Domain()] }

// deliver makes records of some keys, at least one of each.
func (f *failingKeys) deliver(more int) (rs []*record.Record) {
	const keys = 9
	for i := range keys + more {
		key := i
		if i >= keys {
			key = f.rng.IntN(keys)
		}
		rs = append(rs, rec(f.o, f.n, fmt.Sprint("key-", key)))
		f.n++
	}
	return rs
}

func (f *failingKeys) round(work func(fails func(*record.Record) bool) Work, seed uint64) {
	b := f.b
	b.groupsOf(1000)
	rs := f.deliver(0)
	for _, r := range rs {
		f.bad[r.Domain()] = f.rng.IntN(3) == 0
	}
	f.bad[rs[0].Domain()] = true
	b.runWork(rs, work(f.fails)) // those that fail are known from now on
	chain := f.left(rs, seed)
	effects := len(rs) - len(chain)

	for range 3 {
		fresh := f.deliver(40)
		all := slices.Concat(chain, fresh)
		before := query[int](b, "select last_value from runs")
		b.runWork(all, work(f.fails))
		chain = f.left(all, seed)
		well := len(all) - len(chain)
		effects += well
		b.requireLedger(effects)
		require.Equal(b.t, 1, query[int](b, `select count(distinct c) from (select count(*) c from eff group by n) x`))
		// Of a failing key only the first runs; for a whole group it may be tried with the others of its kind first.
		ran := query[int](b, "select last_value from runs") - before
		require.Equal(b.t, well, query[int](b, "select count(*) from eff where note::bigint > $1 and note::bigint <= $1 + $2", before, well),
			"seed %d: those that are well ran before the others, once", seed)
		require.LessOrEqual(b.t, ran, well+len(chain)+f.failing(), "seed %d", seed)
	}

	clear(f.bad)
	b.runWork(chain, work(f.fails))
	require.Empty(b.t, f.left(chain, seed), "they are well again")
	require.Empty(b.t, b.rt.frail, "and known to be")
	b.requireLedger(effects + len(chain))
}

func (f *failingKeys) failing() (n int) {
	for _, bad := range f.bad {
		if bad {
			n++
		}
	}
	return n
}

// left gives those of rs that must come again, which are those of failing keys: the first of each failed, no other ran.
func (f *failingKeys) left(rs []*record.Record, seed uint64) (left []*record.Record) {
	first := map[string]bool{}
	for _, r := range rs {
		if !f.bad[r.Domain()] {
			requireOutcomes(f.b.t, record.Effected, r)
			continue
		}
		if first[r.Domain()] {
			require.ErrorIs(f.b.t, r.Err, record.ErrNotRun, "seed %d, %d", seed, r.Offset)
		} else {
			require.True(f.b.t, charged(r), "seed %d, %d: %v", seed, r.Offset, r.Err)
		}
		first[r.Domain()] = true
		left = append(left, r)
	}
	return left
}
