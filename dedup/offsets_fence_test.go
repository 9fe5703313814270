package dedup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// twoMembers have the same database.
func twoMembers(t *testing.T) (b, other *workbench) {
	t.Helper()
	dsn := pgtest.DSN(t, migrations.Up, schema)
	s := byOffset
	s.dsn = dsn
	return newBench(t, s), newBench(t, s)
}

// paused starts a group of rs in b and stops it after its last handler, before the mark, until goOn is closed.
func (b *workbench) paused(rs []*record.Record) (goOn, done chan struct{}) {
	b.t.Helper()
	reached, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	last, once := rs[len(rs)-1], sync.Once{}
	go func() {
		defer close(done)
		b.rt.Run(context.Background(), rs, Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			err := effect(ctx, tx, r)
			if r == last {
				once.Do(func() { close(reached) })
				<-goOn
			}
			return err
		}))
	}()
	await(b.t, reached)
	return goOn, done
}

func TestFence(t *testing.T) {
	t.Parallel()

	t.Run("ZombieThatWasPausedInMidGroupHasNoEffect", func(t *testing.T) {
		t.Parallel()
		zombie, owner := twoMembers(t)
		old := newOwner()
		rs := recs(old, 20)
		goOn, done := zombie.paused(rs)
		taken := recs(newOwner(), 25)
		owner.run(taken, effect)
		requireOutcomes(t, record.Effected, taken...)
		close(old.soft) // it hears of it at last
		close(goOn)
		await(t, done)
		requireErr(t, record.ErrNotRun, rs...)
		owner.requireLedger(25)
		require.Equal(t, 2, query[int](owner, "select epoch from headrace.offsets"), "it acquires nothing any more")
		require.Zero(t, zombie.counted(zombie.attempts, "transient"))
	})

	t.Run("OwnerThatALateZombieFencedOffAcquiresAgain", func(t *testing.T) {
		t.Parallel()
		owner, zombie := twoMembers(t)
		rs := recs(newOwner(), 20)
		goOn, done := owner.paused(rs[:10])
		late := newOwner()
		zombie.run([]*record.Record{rec(late, 19, "")}, effect)
		close(late.soft)
		close(goOn)
		await(t, done)
		requireOutcomes(t, record.Effected, rs[:10]...)
		owner.run(rs[10:], effect)
		requireOutcomes(t, record.Effected, rs[10:]...)
		owner.requireLedger(20)
		require.Equal(t, 3, query[int](owner, "select epoch from headrace.offsets"))
		require.Equal(t, 1, owner.counted(owner.groups, "rolled_back"))
		require.Empty(t, owner.reports, "once is a rebalance")
	})

	t.Run("ClaimThatIsEndingAcquiresNothing", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		r := rec(o, 1, "")
		r.Reply = "receipt" // it would be run to its end, if its partition were still this claim's
		close(o.soft)
		b.run([]*record.Record{r}, effect)
		requireErr(t, record.ErrNotRun, r)
		_, err := b.rt.Bury(t.Context(), r, Grave{Reason: "permanent"})
		require.ErrorIs(t, err, record.ErrNotRun)
		require.Empty(t, b.offsetRows())
	})

	t.Run("ClaimThatIsOverRunsNothingBesideOneThatLives", func(t *testing.T) {
		t.Parallel()
		b, over, lives := newBench(t, setup{route: RouteConfig{Store: ByOffset, Writers: 1}}), newOwner(), newOwner()
		gate, release := make(chan struct{}), make(chan struct{})
		b.hold(gate, release)
		await(t, gate)
		late, good := rec(over, 3, ""), rec(lives, 4, "")
		late.Reply = "receipt"
		good.Partition = 1
		require.NoError(t, Identify(good, Header("id")))
		var both sync.WaitGroup
		for _, r := range []*record.Record{late, good} {
			both.Go(func() { b.run([]*record.Record{r}, effect) })
		}
		b.awaitQueue(2)
		close(over.soft)
		close(release)
		both.Wait()
		requireErr(t, record.ErrNotRun, late)
		requireOutcomes(t, record.Effected, good)
		require.Equal(t, []int64{4}, query[[]int64](b, "select array_agg(n::bigint) from eff"))
	})

	t.Run("PartitionThatOthersAcquireAgainAndAgainIsReportedOnce", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		r := rec(o, 0, "")
		runs := 0
		b.run([]*record.Record{r}, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if runs++; runs <= 5 {
				b.exec("update headrace.offsets set epoch = epoch + 1")
			}
			return effect(ctx, tx, r)
		})
		requireOutcomes(t, record.Effected, r)
		b.requireLedger(1)
		require.Len(t, b.reports, 1)
		require.Equal(t, record.ReportOvertaken, b.reports[0].Kind)
		require.Equal(t, "orders", b.reports[0].Topic)
	})

	t.Run("RecordThatRunsWhileAnOperatorBuriesItIsRolledBackAndDead", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		rs := recs(o, 10)
		goOn, done := b.paused(rs)
		got, err := b.consumer().Bury(t.Context(), recs(newOwner(), 10)[4], said)
		require.NoError(t, err)
		require.Equal(t, Buried, got)
		close(goOn)
		await(t, done)
		require.ErrorIs(t, rs[4].Err, ErrDead)
		requireOutcomes(t, record.Effected, without(rs, 4)...)
		b.requireLedger(9)
	})

	t.Run("RecordThatWasTriedIsFoundDeadWhenAnOperatorHasBuriedIt", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		r := rec(o, 3, "")
		b.run([]*record.Record{r}, failures["Error"])
		_, err := b.consumer().Bury(t.Context(), rec(newOwner(), 3, ""), said)
		require.NoError(t, err)
		b.requireSaid(r)
		require.Equal(t, DeadOwn, b.bury(r, "manual"))

		call := rec(o, 4, "")
		look := func() Answer {
			answers, err := b.rt.Look(t.Context(), []*record.Record{call})
			require.NoError(t, err)
			return answers[0]
		}
		require.Equal(t, Fresh, look())
		_, err = b.consumer().Bury(t.Context(), rec(newOwner(), 4, ""), said)
		require.NoError(t, err)
		require.Equal(t, DeadOwn, look())
		b.requireSaid(call)
		b.requireLedger(0)
	})
}

// TestOffsetsLedger: four lanes, a record of one fails, COMMITs are lost, and a zombie comes late. What is done and what
// had its effect are the same in each snapshot of the database, not only at the end.
func TestOffsetsLedger(t *testing.T) {
	t.Parallel()
	const lanes, messages, size = 4, 12, 25
	dsn := pgtest.DSN(t, migrations.Up, schema)
	proxy := pgtest.NewProxy(t, dsn)
	b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, route: RouteConfig{Store: ByOffset}})
	zombie := newBench(t, setup{dsn: dsn, route: RouteConfig{Store: ByOffset}})
	o := newOwner()
	all := recs(o, messages*size)
	line := make(chan []*record.Record, messages)
	for m := range messages {
		line <- all[m*size : (m+1)*size]
	}
	close(line)

	over, checked := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { checked <- n }()
		for {
			n += b.requireSnapshot()
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	var members sync.WaitGroup
	for lane := range lanes {
		members.Go(func() {
			for rs := range line {
				if lane%2 == 0 {
					proxy.Once(pgtest.Commit, []pgtest.Action{pgtest.CutReply, pgtest.CutBefore}[lane/2])
				}
				b.untilSettled(rs, unless(int64(size+3), failures["ErrorAfterSQL"]))
			}
		})
	}
	late := newOwner()
	zombie.rt.Run(context.Background(), []*record.Record{rec(late, messages*size-1, "")}, Apply(effect))
	close(late.soft)
	members.Wait()
	close(over)
	require.Positive(t, <-checked)
	failed := all[size+3]
	requireErr(t, errBoom, failed)
	b.requireLedger(messages*size - 1)
	b.untilSettled([]*record.Record{failed}, effect)
	require.Equal(t, int64(messages*size), b.stored().low)
	require.Empty(t, b.stored().done)
	b.requireLedger(messages * size)
}

// untilSettled delivers rs again while a lost connection holds one of them: it waits for the database then.
func (b *workbench) untilSettled(rs []*record.Record, apply Apply) {
	for len(rs) > 0 {
		b.rt.Run(context.Background(), rs, apply)
		rs = slices.DeleteFunc(slices.Clone(rs), func(r *record.Record) bool { return r.Settled() || errors.Is(r.Err, errBoom) })
	}
}

// requireSnapshot compares what is done with what had its effect, as one statement sees both. It gives 1.
func (b *workbench) requireSnapshot() int {
	tx, err := b.pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	require.NoError(b.t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	rows, err := tx.Query(context.Background(), "select n from eff order by n")
	require.NoError(b.t, err)
	ns, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(b.t, err)
	_, row, err := readOffsets(context.Background(), tx.Conn(), b.rt.consumer, partition{topicID, 0}, "")
	require.NoError(b.t, err)
	var had runs
	for _, n := range ns {
		had = had.add(run{n, n + 1})
	}
	var done runs
	done = done.add(run{0, row.low})
	for _, r := range row.done {
		done = done.add(r)
	}
	require.Equal(b.t, had, done, "effects, done")
	require.Len(b.t, ns, storedOffsets{low: row.low, done: row.done}.count(), "no effect twice")
	return 1
}

func TestGraves(t *testing.T) {
	t.Parallel()
	letterAgain := func(t *testing.T, b *workbench) {
		t.Helper()
		r := rec(newOwner(), 1, "")
		b.run([]*record.Record{r}, func(context.Context, pgx.Tx, *record.Record) error { panic("it runs") })
		var dead *DeadError
		require.ErrorAs(t, r.Err, &dead)
		require.Equal(t, DeadError{Reason: "permanent", Text: "it broke"}, *dead)
		require.Equal(t, DeadOwn, b.bury(r, "permanent"))
	}

	t.Run("CrashBeforeTheLetterHasItWritten", func(t *testing.T) {
		t.Parallel()
		b, next := twoMembers(t)
		require.Equal(t, Buried, b.bury(rec(newOwner(), 1, ""), "permanent"))
		letterAgain(t, next)
		letterAgain(t, b)
	})

	t.Run("CrashAfterTheLetterHasItWrittenAgainAndNeverRunsIt", func(t *testing.T) {
		t.Parallel()
		b, next := twoMembers(t)
		r := rec(newOwner(), 1, "")
		require.Equal(t, Buried, b.bury(r, "permanent"))
		require.Equal(t, runs{{1, 2}}, b.stored().graves)
		r.Settle(record.Dead)
		letterAgain(t, next)
	})

	t.Run("NextMarkTakesItAlong", func(t *testing.T) {
		t.Parallel()
		b, next := twoMembers(t)
		o := newOwner()
		r := rec(o, 1, "")
		require.Equal(t, Buried, b.bury(r, "permanent"))
		b.run([]*record.Record{rec(o, 0, "")}, effect)
		require.Equal(t, storedOffsets{low: 1, graves: runs{{1, 2}}, leader: 1}, b.stored(), "its letter is not confirmed")
		r.Settle(record.Dead)
		b.run([]*record.Record{rec(o, 2, "")}, effect)
		require.Equal(t, storedOffsets{low: 3, leader: 1}, b.stored())
		again := rec(newOwner(), 1, "")
		next.run([]*record.Record{again}, effect)
		requireOutcomes(t, record.Effected, again)
		require.Equal(t, 2, query[int](b, "select count(*) from eff"))
	})

	t.Run("IdlePartitionIsMarkedToo", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, byOffset)
		r := rec(newOwner(), 0, "")
		require.Equal(t, Buried, b.bury(r, "permanent"))
		r.Settle(record.Dead)
		require.Eventually(t, func() bool { return b.stored().low == 1 }, 30*time.Second, 5*time.Millisecond)
		require.Empty(t, b.stored().graves)
		require.Eventually(t, func() bool {
			b.rt.offsets.mu.Lock()
			defer b.rt.offsets.mu.Unlock()
			return !b.rt.offsets.keeping
		}, 30*time.Second, 5*time.Millisecond, "nobody keeps what nobody waits for")
	})

	t.Run("EndOfAClaimMarksIt", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		r := rec(o, 0, "")
		require.Equal(t, Buried, b.bury(r, "permanent"))
		r.Settle(record.Dead)
		close(o.soft)
		require.NoError(t, b.rt.Released(t.Context(), topicID, 0))
		require.Equal(t, storedOffsets{low: 1, leader: 1}, b.stored())
	})

	// The log was cut at 3 and has grown again, under another leader: this record is another than the one that is done.
	t.Run("RecordThatCannotBeReadIsNotSettledForTheOldOneOfALogThatWasCut", func(t *testing.T) {
		t.Parallel()
		b, next := twoMembers(t)
		b.run(recs(newOwner(), 7), effect)
		anew := rec(newOwner(), 3, "")
		anew.LeaderEpoch = 2
		_, err := next.rt.Bury(t.Context(), anew, Grave{Reason: "undecodable"})
		require.ErrorContains(t, err, "of leader epoch 2 is at offset 3")
		require.Equal(t, fault.ClassUnavailable, builtIn.Classify(t.Context(), err).Class)
		require.Equal(t, record.ReportTruncated, next.reports[0].Kind)
		require.Zero(t, query[int](b, "select count(*) from headrace.inbox"))
	})

	t.Run("RowThatWasSweptIsStillNoReasonToRunIt", func(t *testing.T) {
		t.Parallel()
		b, next := twoMembers(t)
		require.Equal(t, Buried, b.bury(rec(newOwner(), 1, ""), "permanent"))
		b.exec("delete from headrace.inbox")
		r := rec(newOwner(), 1, "")
		next.run([]*record.Record{r}, effect)
		require.ErrorIs(t, r.Err, ErrDead)
		require.Equal(t, Buried, next.bury(r, "permanent"))
	})

	t.Run("ReplayedBeforeItIsMarkedItIsEffected", func(t *testing.T) {
		t.Parallel()
		b, next := twoMembers(t)
		r := rec(newOwner(), 1, "")
		require.Equal(t, Buried, b.bury(r, "permanent"))
		again, twice := replay(newOwner(), r, 70), replay(newOwner(), r, 71)
		b.run([]*record.Record{again}, effect)
		requireOutcomes(t, record.Effected, again)
		b.run([]*record.Record{twice}, effect)
		requireOutcomes(t, record.Duplicate, twice)

		o := newOwner()
		r = rec(o, 1, "")
		next.run([]*record.Record{r}, effect)
		requireOutcomes(t, record.Effected, r)
		require.NoError(t, next.rt.Released(t.Context(), topicID, 0))
		require.Equal(t, runs{{1, 2}}, next.stored().done)
		require.Empty(t, next.stored().graves)
		require.Equal(t, 1, query[int](b, "select count(*) from eff"))
	})
}
