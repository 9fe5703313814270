package dedup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// written makes the records from..to of a log, as its leader of that epoch wrote them.
func written(o *owner, from, to int, epoch int32) []*record.Record {
	var rs []*record.Record
	for n := from; n <= to; n++ {
		r := rec(o, n, "")
		r.LeaderEpoch = epoch
		rs = append(rs, r)
	}
	return rs
}

func requireCut(t *testing.T, rs ...*record.Record) {
	t.Helper()
	requireClass(t, fault.ClassUnavailable, rs...)
	for _, r := range rs {
		require.ErrorContains(t, r.Err, "of leader epoch", "offset %d", r.Offset)
		require.False(t, r.Settled(), "offset %d", r.Offset)
	}
}

// TestOffsetsCut: record 100 waits, 101 to 150 are done, and leader 0 wrote them all. Then the log is cut, and grows again
// under leader 1.
func TestOffsetsCut(t *testing.T) {
	t.Parallel()
	before := func(t *testing.T) (b, next *workbench) {
		t.Helper()
		b, next = twoMembers(t)
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 100))
		rs := written(newOwner(), 101, 150, 0)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		return b, next
	}

	t.Run("NewRecordsAboveLowAreNotTakenForTheOldOnes", func(t *testing.T) {
		t.Parallel()
		_, next := before(t)
		o := newOwner()
		require.NoError(t, next.rt.Claimed(t.Context(), topicID, 0, 100))
		next.run(written(o, 100, 100, 0), effect)
		_, err := next.rt.Look(t.Context(), written(o, 120, 120, 1))
		require.ErrorContains(t, err, "of leader epoch 1 is at offset 120")
		rs := written(o, 120, 160, 1)
		next.run(rs, effect)
		requireCut(t, rs...)
		require.Len(t, next.reports, 1)
		require.Equal(t, record.ReportTruncated, next.reports[0].Kind)
		require.Equal(t, 51, query[int](next, "select count(*) from eff"))
	})

	t.Run("FirstNewRecordHoldsAllOfThemAlthoughItsOffsetIsNotDone", func(t *testing.T) {
		t.Parallel()
		_, next := before(t)
		o := newOwner()
		first, behind := written(o, 100, 100, 1), written(o, 200, 200, 1)
		next.run(first, effect)
		next.run(behind, effect)
		requireCut(t, append(first, behind...)...)
		require.Equal(t, 50, query[int](next, "select count(*) from eff"))
	})

	t.Run("LaneThatIsAheadOfThemHidesNothing", func(t *testing.T) {
		t.Parallel()
		_, next := before(t)
		o := newOwner()
		ahead, rs := written(o, 151, 160, 1), written(o, 120, 150, 1)
		next.run(ahead, effect)
		requireOutcomes(t, record.Effected, ahead...)
		next.exec("update headrace.offsets set epoch = epoch + 1")
		next.run(written(o, 161, 161, 1), effect) // is fenced off, and acquires again
		next.run(rs, effect)
		requireCut(t, rs...)
	})

	t.Run("PartitionThatWasCutTakesNoOtherOfItsGroupWithIt", func(t *testing.T) {
		t.Parallel()
		_, next := before(t)
		rs := written(newOwner(), 120, 120, 1)
		for n := range 5 {
			rs = append(rs, on(1, n))
		}
		next.run(rs, effect)
		requireCut(t, rs[0])
		requireOutcomes(t, record.Effected, rs[1:]...)
		require.Zero(t, next.counted(next.groups, "rolled_back"))
		require.Equal(t, 55, query[int](next, "select count(*) from eff"))
	})

	t.Run("GraveIsNotTheNewRecords", func(t *testing.T) {
		t.Parallel()
		b, next := before(t)
		old := written(newOwner(), 170, 170, 0)[0]
		require.Equal(t, Buried, b.bury(old, "permanent"))
		anew := written(newOwner(), 170, 170, 1)
		next.run(anew, effect)
		requireCut(t, anew...)
		_, err := next.rt.Bury(t.Context(), anew[0], said)
		require.ErrorContains(t, err, "of leader epoch 1 is at offset 170", "its letter would be the old one's")
	})

	t.Run("RecordThatCannotBeReadIsNotSettledForTheOldOneBelowLowNorAboveIt", func(t *testing.T) {
		t.Parallel()
		_, next := before(t)
		for _, n := range []int{90, 120} {
			r := written(newOwner(), n, n, 1)[0]
			_, err := next.rt.Bury(t.Context(), r, Grave{Reason: "undecodable"})
			require.Equal(t, fault.ClassUnavailable, builtIn.Classify(t.Context(), err).Class)
			require.ErrorContains(t, err, "of leader epoch 1 is at offset")
		}
	})

	t.Run("LeaderThatWasElectedIsNoCut", func(t *testing.T) {
		t.Parallel()
		b, next := before(t)
		rs := written(newOwner(), 151, 160, 1)
		b.run(rs, effect)
		again := newOwner()
		rs = append(written(again, 100, 150, 0), written(again, 151, 165, 1)...)
		next.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		require.Equal(t, 66, query[int](next, "select count(*) from eff"))
	})

	t.Run("EpochsThatNobodyKnowsSayNothing", func(t *testing.T) {
		t.Parallel()
		b, next := before(t)
		b.run(written(newOwner(), 151, 160, -1), effect)
		rs := append(written(newOwner(), 140, 145, -1), written(newOwner(), 155, 155, 3)...)
		next.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
	})

	t.Run("OperatorsBurialKeepsWhatIsKnown", func(t *testing.T) {
		t.Parallel()
		b, next := before(t)
		_, err := b.consumer().Bury(t.Context(), written(newOwner(), 100, 100, 0)[0], said)
		require.NoError(t, err)
		rs := written(newOwner(), 120, 120, 1)
		next.run(rs, effect)
		requireCut(t, rs...)
	})
}
