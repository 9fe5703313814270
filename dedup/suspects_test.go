package dedup

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func TestSuspects(t *testing.T) {
	t.Parallel()
	eachStore(t, testSuspects)
}

func testSuspects(t *testing.T) {
	t.Parallel()
	short := Config{HardGrace: time.Millisecond}
	// start is a process that gets the partition at offset 0.
	start := func(t *testing.T, dsn string) *workbench {
		b := newBench(t, setup{dsn: dsn, cfg: short})
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 0))
		return b
	}
	// die is a process that ends in record 7: its transaction is rolled back, its mark stays.
	die := func(b *workbench, rs []*record.Record) {
		if b.rt.suspects.has(rs[7]) {
			b.mark(rs[7])
		}
	}

	t.Run("RecordThatTakesItsProcessDownIsDeadAfterThreeTimes", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for range 5 {
			die(start(t, dsn), recs(newOwner(), 20))
		}
		b := start(t, dsn)
		rs := recs(newOwner(), 20)
		b.run(rs, unless(7, func(context.Context, pgx.Tx, *record.Record) error { panic("the process would die") }))
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		requireClass(t, fault.ClassBusy, rs[7]) // the process that marked it may live yet
		b.lateDeaths()
		b.run(rs[7:8], effect)
		requireErr(t, ErrCrashLoop, rs[7])
		b.requireLedger(19)
		require.Equal(t, record.ReportCrashLoop, b.reports[0].Kind)
		require.EqualValues(t, 7, b.reports[0].Offset)
		require.Len(t, b.reports, 1, "told once, and not of the one that may live yet")
	})

	// Run one at a time, the records before the killer take longer than CommitInterval: the next claim begins behind them.
	t.Run("OffsetCommittedOnTheWayToTheKillerForgetsNothing", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for range 5 {
			die(start(t, dsn), recs(newOwner(), 20))
		}
		b := newBench(t, setup{dsn: dsn, cfg: short})
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 5))
		b.lateDeaths()
		rs := recs(newOwner(), 20)
		b.run(rs[7:8], effect)
		requireErr(t, ErrCrashLoop, rs[7])
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 8))
		require.False(t, b.rt.suspects.any.Load(), "the killer is behind us")
	})

	// An offset store commits what came before the killer in each process; so does an inbox, if it takes a while. But who is
	// killed for another reason, again and again, makes headway each time, and is not to run one record at a time for it.
	t.Run("OffsetThatMovesWithADeathBeginsTheCountWithThatDeath", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		claim := func(offset int64) bool {
			b.exec("update headrace.claim_starts set holder = gen_random_uuid() where holder is not null") // which died
			require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, offset))
			return b.rt.suspects.any.Load()
		}
		window := int64(suspectBatches * 500)
		for offset := range int64(5) {
			require.False(t, claim(offset), "headway")
		}
		require.True(t, claim(4), "the second death at this offset")
		require.True(t, claim(5), "one at a time, a commit comes between")
		require.True(t, claim(5+window))
		require.False(t, claim(6+2*window), "none of these was in flight when the others died")
		require.True(t, claim(6+2*window))
		require.NoError(t, b.rt.Released(t.Context(), topicID, 0))
		require.False(t, claim(7+2*window), "in order, and on")
	})

	// Sessions are lost in a network that is cut off, by processes that live.
	t.Run("ClaimsThatWereLostByProcessesThatLiveMakeNobodyASuspectForLong", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		lost := start(t, dsn)
		start(t, dsn) // has died
		b := start(t, dsn)
		rs := recs(newOwner(), 20)
		require.True(t, b.rt.suspects.any.Load())
		lost.in.say(t.Context(), aliveSQL)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		require.False(t, b.rt.suspects.any.Load())
		require.Less(t, b.counted(b.groups, "committed"), 5, "not each alone")
	})

	t.Run("ProcessThatLivesSaysSoUnasked", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		lost := newBench(t, setup{dsn: dsn, cfg: Config{vouchEvery: 10 * time.Millisecond}})
		require.NoError(t, lost.rt.Claimed(t.Context(), topicID, 0, 0))
		b := start(t, dsn)
		require.Eventually(t, func() bool { return query[int](b, "select cardinality(died) from headrace.claim_starts") == 0 },
			30*time.Second, 10*time.Millisecond)
	})

	t.Run("ClaimThatCouldNotBeGivenUpInItsTimeIsGivenUpAtTheEnd", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for range 3 {
			start(t, dsn).in.Close()
		}
		taken := start(t, dsn) // before it was given up
		b := start(t, dsn)
		require.Equal(t, 1, query[int](b, "select cardinality(died) from headrace.claim_starts"))
		taken.in.Close()
		require.Zero(t, query[int](b, "select cardinality(died) from headrace.claim_starts"))
		require.Equal(t, b.in.id.String(), query[string](b, "select holder::text from headrace.claim_starts"))
	})

	t.Run("OrdinaryFailureOfASuspectConvictsNobody", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for range 4 {
			b := start(t, dsn)
			rs := recs(newOwner(), 3)
			b.run(rs[1:2], failures["ErrorAfterSQL"])
			requireErr(t, errBoom, rs[1])
			require.Zero(t, query[int](b, "select count(*) from headrace.suspects"))
		}
	})

	t.Run("MemberThatLivesTakesItsMarkOffAlsoAfterARebalance", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for range 2 {
			start(t, dsn)
		}
		old := start(t, dsn)
		rs := recs(newOwner(), 3)
		var next *workbench
		old.run(rs[1:2], func(context.Context, pgx.Tx, *record.Record) error {
			next = start(t, dsn) // the partition moves on while the record runs
			return errBoom
		})
		next.run(rs[1:2], effect)
		requireOutcomes(t, record.Effected, rs[1])
	})

	t.Run("SigkillsInARowConvictNobodyTheyHitOnce", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for killed := range int64(6) { // each hits another record
			b := start(t, dsn)
			rs := recs(newOwner(), 20)
			if r := rs[killed]; b.rt.suspects.has(r) {
				b.mark(r)
			}
		}
		b := start(t, dsn)
		b.lateDeaths()
		rs := recs(newOwner(), 20)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
	})

	// Deployments while the head is held, and then one node is lost while an innocent record runs.
	t.Run("ClaimThatWasGivenUpInOrderIsNoDeath", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for range 5 {
			b := start(t, dsn)
			require.NoError(t, b.rt.Released(t.Context(), topicID, 0))
		}
		die(start(t, dsn), recs(newOwner(), 20))
		b := start(t, dsn)
		require.False(t, b.rt.suspects.any.Load())
		rs := recs(newOwner(), 20)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
	})

	t.Run("OffsetThatMovesStartsAnew", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		for offset := range int64(5) {
			require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, offset))
		}
		require.False(t, b.rt.suspects.any.Load())
		for range 2 {
			b.exec("update headrace.claim_starts set holder = gen_random_uuid()") // another process, that died
			require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 4))
		}
		require.True(t, b.rt.suspects.has(rec(newOwner(), 4, "")))
		require.False(t, b.rt.suspects.has(rec(newOwner(), 4+suspectBatches*500, "")))
		rs := recs(newOwner(), 14)[4:]
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		require.Equal(t, 10, b.counted(b.groups, "committed"), "one at a time")
	})
}
