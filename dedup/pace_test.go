package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestPace(t *testing.T) {
	t.Parallel()
	const span = 200 * time.Millisecond

	t.Run("FastHandlersHaveFullGroupsAfterThree", func(t *testing.T) {
		t.Parallel()
		p := newPace(500, span)
		var limits []int
		for range 5 {
			limits = append(limits, p.limit)
			p.observe(p.limit, p.limit, time.Millisecond)
		}
		require.Equal(t, []int{64, 128, 256, 500, 500}, limits)
	})

	t.Run("CutGroupMakesTheNextWhatGetsThrough", func(t *testing.T) {
		t.Parallel()
		p := newPace(500, span)
		p.observe(64, 40, span+time.Millisecond)
		require.Equal(t, 35, p.limit)
		p.observe(64, 48, span+time.Millisecond) // formed before that was known
		require.Equal(t, 35, p.limit)
	})

	t.Run("GroupsThatSayNothingChangeNothing", func(t *testing.T) {
		t.Parallel()
		p := newPace(500, span)
		p.observe(63, 63, time.Millisecond)   // not full
		p.observe(64, 64, span/2)             // full, and twice as many would be cut
		p.observe(64, 64, time.Minute)        // the last one was slow: nothing was taken in vain
		p.observe(64, 30, 3*time.Millisecond) // ended by something else than its time
		require.Equal(t, 64, p.limit)
	})

	t.Run("OneRecordSlowerThanTheWholeTime", func(t *testing.T) {
		t.Parallel()
		p := newPace(500, span)
		p.observe(64, 1, time.Second)
		require.Equal(t, 1, p.limit)
		p.observe(1, 1, time.Second)
		require.Equal(t, 1, p.limit)
		for n := 0; p.limit < 500; n++ {
			p.observe(p.limit, p.limit, time.Millisecond)
			require.Less(t, n, 10, "it must find back")
		}
	})

	t.Run("NeverZeroAndNeverAboveTheMost", func(t *testing.T) {
		t.Parallel()
		rnd := rand.New(rand.NewPCG(1, 2))
		for _, most := range []int{1, 2, 7, 63, 64, 65, 500, 10_000} {
			p := newPace(most, span)
			for range 2000 {
				require.GreaterOrEqual(t, p.limit, 1)
				require.LessOrEqual(t, p.limit, most)
				size := 1 + rnd.IntN(p.limit)
				if rnd.IntN(2) == 0 {
					size = p.limit
				}
				p.observe(size, size-rnd.IntN(size+1)*rnd.IntN(2), time.Duration(rnd.Int64N(int64(2*span))))
			}
		}
	})

	for _, each := range []time.Duration{100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond, 30 * time.Millisecond, time.Second} {
		t.Run(fmt.Sprintf("HandlersOf%sTakeFewRowsInVain", each), func(t *testing.T) {
			t.Parallel()
			const records = 20_000
			p, inserted, groups := newPace(500, span), 0, 0
			rnd := rand.New(rand.NewPCG(3, 4))
			for left := records; left > 0; groups++ {
				size := min(p.limit, left)
				inserted += size
				through, took := 0, time.Duration(0)
				for through < size && took <= span {
					through++
					took += each/2 + time.Duration(rnd.Int64N(int64(each)))
				}
				p.observe(size, through, took)
				left -= through
			}
			require.Less(t, inserted, records+records/10)
			fewest := max(records/500, int(records*each/span))
			require.Less(t, groups, 2*fewest+10)
		})
	}
}

// lineOf is a route without a database: its queue and how groups are formed of it.
func lineOf(most int) *Route {
	rt := &Route{flight: map[uuid.UUID]flying{}, pace: newPace(most, time.Minute), suspects: &suspects{}}
	rt.changed.L = &rt.mu
	return rt
}

func (rt *Route) formed() *group { return rt.form(&writer{}) }

func offsets(g *group) (list []int64) {
	if g == nil {
		return nil
	}
	for _, e := range g.entries {
		list = append(list, e.r.Offset)
	}
	return list
}

func TestLine(t *testing.T) {
	t.Parallel()
	enqueue := func(rt *Route, rs ...*record.Record) *call {
		c := newCall(context.Background(), rs, Apply(effect))
		rt.enqueue(c)
		return c
	}
	// end is the end of a group of which so many got through, as the writer would have it.
	end := func(rt *Route, g *group, through int) {
		g.todo = g.entries
		for _, e := range g.entries[:through] {
			e.outcome = record.Effected
		}
		rt.finish(g)
	}

	t.Run("RestOfAMessageGoesToOtherWriters", func(t *testing.T) {
		t.Parallel()
		rt := lineOf(4)
		enqueue(rt, recs(newOwner(), 10)...)
		require.Equal(t, []int64{0, 1, 2, 3}, offsets(rt.formed()))
		require.Equal(t, []int64{4, 5, 6, 7}, offsets(rt.formed()))
		require.Equal(t, []int64{8, 9}, offsets(rt.formed()))
		require.Nil(t, rt.formed())
		require.Empty(t, rt.queue)
	})

	t.Run("KeyIsNeverInTwoGroups", func(t *testing.T) {
		t.Parallel()
		rt, o := lineOf(3), newOwner()
		c := enqueue(rt, rec(o, 0, "a"), rec(o, 1, "b"), rec(o, 2, "a"), rec(o, 3, "a"), rec(o, 4, "c"), rec(o, 5, "b"))
		first, second := rt.formed(), rt.formed()
		require.Equal(t, []int64{0, 1, 2}, offsets(first))
		require.Equal(t, []int64{4}, offsets(second))
		require.Nil(t, rt.formed())
		end(rt, second, 1)
		require.Nil(t, rt.formed())
		end(rt, first, 2) // cut before offset 2
		last := rt.formed()
		require.Equal(t, []int64{2, 3, 5}, offsets(last))
		end(rt, last, 3)
		await(t, c.done)
	})

	t.Run("RestStaysBehindAFailureInAGroup", func(t *testing.T) {
		t.Parallel()
		for name, fail := range map[string]func(*group){
			"its own":      func(g *group) { g.fail(g.entries[0], errBoom) },
			"the database": func(g *group) { g.failAll(fault.Unavailable(errBoom, fault.Database)) },
		} {
			rt, o := lineOf(1), newOwner()
			rs := []*record.Record{rec(o, 0, "a"), rec(o, 1, "a"), rec(o, 2, "b"), rec(o, 3, "a")}
			c := enqueue(rt, rs...)
			first, second := rt.formed(), rt.formed()
			require.Equal(t, []int64{2}, offsets(second), name)
			fail(first)
			end(rt, first, 0)
			require.Nil(t, rt.formed(), name)
			end(rt, second, 1)
			await(t, c.done)
			requireErr(t, errBoom, rs[0])
			requireErr(t, record.ErrNotRun, rs[1], rs[3])
		}
	})

	t.Run("SmallMessageIsNotBehindAllOfTheBigOnes", func(t *testing.T) {
		t.Parallel()
		rt, o := lineOf(4), newOwner()
		rs := recs(o, 201)
		enqueue(rt, rs[:100]...)
		enqueue(rt, rs[100:200]...)
		enqueue(rt, rs[200])
		require.Equal(t, []int64{0, 1, 2, 3}, offsets(rt.formed()))
		require.Equal(t, []int64{100, 101, 102, 103}, offsets(rt.formed()))
		require.Equal(t, []int64{200, 4, 5, 6}, offsets(rt.formed()))
	})

	t.Run("RecordThatMustBeAloneRunsBesideNothingOfItsMessage", func(t *testing.T) {
		t.Parallel()
		rt, o := lineOf(4), newOwner()
		c := enqueue(rt, recs(o, 8)...)
		c.entries[2].solo = true
		before := rt.formed()
		require.Equal(t, []int64{0, 1}, offsets(before))
		require.Nil(t, rt.formed())
		end(rt, before, 2)
		alone := rt.formed()
		require.Equal(t, []int64{2}, offsets(alone))
		require.Nil(t, rt.formed())
		enqueue(rt, rec(o, 9, ""))
		require.Equal(t, []int64{9}, offsets(rt.formed()), "others run")
		end(rt, alone, 1)
		require.Equal(t, []int64{3, 4, 5, 6}, offsets(rt.formed()))
	})

	t.Run("EndOfADeliveryReachesEachOfItsGroups", func(t *testing.T) {
		t.Parallel()
		rt := lineOf(2)
		rs := recs(newOwner(), 5)
		c := enqueue(rt, rs...)
		first, second := rt.formed(), rt.formed()
		rt.end(c, record.ErrLost, true)
		require.True(t, first.gone.Load())
		require.True(t, second.gone.Load())
		require.Nil(t, rt.formed())
		end(rt, first, 0)
		end(rt, second, 0)
		await(t, c.done)
		requireErr(t, record.ErrLost, rs...)
	})
}

func TestSplit(t *testing.T) {
	t.Parallel()

	t.Run("SlowHandlersInsertHardlyMoreRowsThanThereAreRecords", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{MaxBatchTime: 20 * time.Millisecond}})
		const messages, size = 4, 500
		var wg sync.WaitGroup
		for m := range messages {
			o := newOwner()
			rs := make([]*record.Record, size)
			for i := range rs {
				rs[i] = rec(o, m*size+i, "")
			}
			wg.Go(func() {
				b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
					if _, err := tx.Exec(ctx, "select pg_sleep(0.002)"); err != nil {
						return err
					}
					return effect(ctx, tx, r)
				})
				requireOutcomes(t, record.Effected, rs...)
			})
		}
		wg.Wait()
		b.requireLedger(messages * size)
		inserted := b.counted(b.answers, "fresh")
		t.Logf("%d rows inserted for %d records", inserted, messages*size)
		require.Less(t, inserted, 2*messages*size, "full groups would insert 25 times as many") // half of it is the machine's
	})

	t.Run("WriterThatIsBusyWithAMessageDoesNotHoldItsRest", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 2, AttemptTimeout: time.Minute}})
		rs := recs(newOwner(), 2*firstLimit)
		other := make(chan struct{})
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			switch r.Offset {
			case 0:
				<-other
			case firstLimit:
				close(other)
			}
			return effect(ctx, tx, r)
		})
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(2 * firstLimit)
	})

	t.Run("KeysKeepTheirOrderOverManyGroups", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{MaxBatch: 8}}), newOwner()
		rs := make([]*record.Record, 400)
		for i := range rs {
			rs[i] = rec(o, i, fmt.Sprint(i%7))
		}
		const bad = 203 // of key 0
		var mu sync.Mutex
		last := map[int64]int64{}
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if r.Offset == bad {
				return errBoom
			}
			mu.Lock()
			defer mu.Unlock()
			key := r.Offset % 7
			if last[key] > r.Offset {
				return fault.Permanent(errors.New("out of order"))
			}
			last[key] = r.Offset
			return effect(ctx, tx, r)
		})
		effects := 0
		for i, r := range rs {
			switch {
			case i == bad:
				requireErr(t, errBoom, r)
			case i > bad && i%7 == bad%7:
				requireErr(t, record.ErrNotRun, r)
			default:
				requireOutcomes(t, record.Effected, r)
				effects++
			}
		}
		b.requireLedger(effects)
	})
}
