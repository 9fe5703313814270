package dedup

import (
	"context"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

var byOffset = setup{route: RouteConfig{Store: ByOffset}}

// stored is what the store has of the tests' partition, but for its top.
func (b *workbench) stored() storedOffsets {
	row := b.offsetRows()[partition{topicID, 0}]
	row.top = top{}
	return row
}

func TestOffsets(t *testing.T) {
	t.Parallel()

	t.Run("GapsInTheLogAreDoneWithTheRecordBehindThem", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 100))
		first, second, third := rec(o, 100, ""), rec(o, 150, ""), rec(o, 7000, "")
		second.Follows, third.Follows = 100, 150
		b.run([]*record.Record{third}, effect)
		require.Equal(t, storedOffsets{low: 100, done: runs{{151, 7001}}, leader: -1}, b.stored())
		b.run([]*record.Record{first}, effect)
		require.Equal(t, storedOffsets{low: 101, done: runs{{151, 7001}}, leader: 1}, b.stored())
		b.run([]*record.Record{second}, effect)
		require.Equal(t, storedOffsets{low: 7001, leader: 1}, b.stored())
	})

	t.Run("WhatIsBehindTheClaimsFirstRecordIsDone", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		b.run([]*record.Record{rec(o, 0, ""), rec(o, 1, ""), rec(o, 5, "")}, effect) // 2, 3, 4 are lost to compaction meanwhile
		require.Equal(t, storedOffsets{low: 2, done: runs{{5, 6}}, leader: 1}, b.stored())
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 5))
		again := newOwner()
		five, six := rec(again, 5, ""), rec(again, 6, "")
		b.run([]*record.Record{five, six}, effect)
		requireOutcomes(t, record.Effected, five, six)
		require.Equal(t, storedOffsets{low: 7, leader: 1}, b.stored())
		require.Equal(t, 4, query[int](b, "select count(*) from eff"))
	})

	t.Run("WhatOneSubscriptionLeftIsNotDoneBecauseTheNextBeginsBehindIt", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 10))
		left := rec(o, 20, "") // it was given back, and rests
		b.run([]*record.Record{rec(o, 10, "")}, effect)
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 30)) // the next subscription, in the same claim
		b.exec("update headrace.offsets set epoch = epoch + 1")
		b.run([]*record.Record{rec(o, 30, "")}, effect) // is fenced off, and acquires again
		b.run([]*record.Record{left}, effect)
		requireOutcomes(t, record.Effected, left)
		require.Equal(t, []int64{10, 20, 30}, query[[]int64](b, "select array_agg(n::bigint order by n) from eff"))
		close(o.soft)
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 40)) // the next claim
		b.run([]*record.Record{rec(newOwner(), 40, "")}, effect)
		require.Equal(t, storedOffsets{low: 41, leader: 1}, b.stored())
	})

	t.Run("OffsetsThatWereResetBackwardsAreNotRunAgain", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		b.run(recs(newOwner(), 50), effect)
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 10))
		rs := recs(newOwner(), 60)[10:]
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(60)
	})

	t.Run("TopicThatIsMadeAnewIsAnotherOne", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		b.run(recs(newOwner(), 5), effect)
		o := newOwner()
		rs := recs(o, 5)
		for _, r := range rs {
			r.TopicID = uuid.MustParse("0e1d3c1e-6a51-4a6f-9c5a-2d5a7a0b9c11")
			require.NoError(t, Identify(r, Header("id")))
		}
		b.run(rs, effect)
		require.Equal(t, 10, query[int](b, "select count(*) from eff"))
	})

	t.Run("UnknownTopicIdIsHeldAndReported", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		r := rec(newOwner(), 1, "")
		r.TopicID = uuid.Nil
		b.run([]*record.Record{r}, effect)
		require.ErrorIs(t, r.Err, errNoTopicID)
		requireClass(t, fault.ClassUnavailable, r)
		require.Equal(t, record.ReportOffsetsHeld, b.reports[0].Kind)
		require.Zero(t, query[int](b, "select count(*) from eff"))
	})

	t.Run("RowThatNobodyCanReadHoldsAndIsReportedOnce", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		b.run(recs(newOwner(), 3), effect)
		b.exec(`update headrace.offsets set done = '\x0901'`)
		o := newOwner()
		for range 2 {
			rs := recs(o, 5)
			b.run(rs, effect)
			requireClass(t, fault.ClassUnavailable, rs...)
			requireErr(t, errOffsets, rs...)
		}
		require.Len(t, b.reports, 1)
		require.Equal(t, record.ReportOffsetsHeld, b.reports[0].Kind)
		require.Equal(t, 3, query[int](b, "select count(*) from eff"))
		b.exec(`update headrace.offsets set done = ''`)
		rs := recs(o, 5)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(5)
	})

	// The log was cut at 3 and has grown again, under another leader: 3 to 6 are other records than those that are done.
	t.Run("NewRecordsOfALogThatWasCutAreNotTakenForTheOldOnes", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		b.run(recs(newOwner(), 7), effect)
		o := newOwner()
		old, anew := recs(o, 3), rec(o, 3, "")
		anew.LeaderEpoch = 2
		b.run(old, effect)
		requireOutcomes(t, record.Effected, old...)
		for range 2 {
			_, err := b.rt.Look(t.Context(), []*record.Record{anew})
			require.ErrorContains(t, err, "of leader epoch 2 is at offset 3")
			b.run([]*record.Record{anew, rec(o, 7, "")}, effect)
			requireClass(t, fault.ClassUnavailable, anew)
			require.False(t, anew.Settled())
		}
		require.Len(t, b.reports, 1)
		require.Equal(t, record.ReportTruncated, b.reports[0].Kind)
		require.Equal(t, 7, query[int](b, "select count(*) from eff"), "nor does anything run behind it")
	})

	t.Run("AcquiresOnceAClaim", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		for claims := range int64(3) {
			o := newOwner()
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() { b.run([]*record.Record{rec(o, i, "")}, effect) })
			}
			all.Wait()
			require.Equal(t, claims+1, query[int64](b, "select epoch from headrace.offsets"))
		}
		b.requireLedger(8)
	})

	t.Run("LowsAreReadWithoutAcquiring", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		b.run(recs(newOwner(), 7), effect)
		lows, err := b.rt.Lows(t.Context(), topicID, []int32{0, 1})
		require.NoError(t, err)
		require.Equal(t, map[int32]Low{0: {Offset: 7, LeaderEpoch: 1, End: 7}}, lows)
		require.Equal(t, 1, query[int](b, "select epoch from headrace.offsets"))
	})

	t.Run("LowsTellHowFarTheLogMustReach", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		o := newOwner()
		b.run([]*record.Record{rec(o, 0, ""), rec(o, 4, ""), rec(o, 5, "")}, effect)
		b.bury(rec(o, 8, ""), "permanent")
		lows, err := b.rt.Lows(t.Context(), topicID, []int32{0})
		require.NoError(t, err)
		require.EqualValues(t, 1, lows[0].Offset)
		require.EqualValues(t, 9, lows[0].End, "a dead one was read too")
		b.exec(`update headrace.offsets set done = '\x0901'`)
		lows, err = b.rt.Lows(t.Context(), topicID, []int32{0})
		require.NoError(t, err, "it holds the records of that partition, when they come, and no other")
		require.Empty(t, lows)
	})

	t.Run("SeveralPartitionsInOneGroup", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{Store: ByOffset, Writers: 1}}), newOwner()
		gate, release := make(chan struct{}), make(chan struct{})
		b.hold(gate, release)
		await(t, gate)
		var all sync.WaitGroup
		for part := range int32(5) {
			r := rec(o, 0, "")
			r.Partition = part
			require.NoError(t, Identify(r, Header("id")))
			all.Go(func() { b.run([]*record.Record{r}, effect) })
		}
		b.awaitQueue(5)
		close(release)
		all.Wait()
		require.Equal(t, 1, b.counted(b.groups, "committed"))
		for at, row := range b.offsetRows() {
			if at.topic == topicID {
				require.True(t, row.has(0), at)
			}
		}
	})

	t.Run("NothingDoneNeedsNoMark", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		rs := recs(newOwner(), 5)
		b.run(rs, failures["ErrorAfterSQL"])
		require.Equal(t, storedOffsets{leader: -1}, b.stored())
		b.run(rs[1:3], effect)
		require.Equal(t, storedOffsets{done: runs{{1, 3}}, leader: -1}, b.stored())
	})

	t.Run("OtherIsolationIsRefusedWithAReason", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		_, err := b.in.Route(t.Context(), named(RouteConfig{Name: "strict", Store: ByOffset, Isolation: pgx.Serializable}))
		require.ErrorContains(t, err, "the offset store runs read committed only")
		_, err = b.in.Route(t.Context(), named(RouteConfig{Name: "what", Store: 7}))
		require.ErrorContains(t, err, "there is no store(7)")
	})

	t.Run("SoloRouteMarksEachRecord", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Store: ByOffset, Solo: true}})
		b.run(recs(newOwner(), 5), func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if _, err := tx.Exec(ctx, "set local search_path = public"); err != nil {
				return err
			}
			return effect(ctx, tx, r)
		})
		require.Equal(t, 5, b.counted(b.groups, "committed"))
		b.requireLedger(5)
	})
}
