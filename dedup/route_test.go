package dedup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// hostile is an error that cannot be looked at.
type hostile struct{}

func (hostile) Error() string { return "hostile" }
func (hostile) Is(error) bool { panic("in Is") }

func TestRun(t *testing.T) {
	t.Parallel()
	eachStore(t, testRun)
}

func testRun(t *testing.T) {
	t.Parallel()

	t.Run("EachRecordHasItsEffectAndItsRow", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := recs(o, 300)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(300)
		require.Equal(t, 300, b.counted(b.answers, "fresh"))
		require.Equal(t, 300, b.counted(b.attempts, ""))
		require.Positive(t, rs[0].Spent)
		_, running := rs[0].RunningSince()
		require.False(t, running)
	})

	t.Run("OneRecordOpensAndCommitsInTwoTrips", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, route: RouteConfig{Writers: 1}})
		write := func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Exec(ctx, "update acc set balance = balance + 1 where id = 1")
			return err
		}
		o := newOwner()
		b.run([]*record.Record{rec(o, 0, "")}, write) // acquires the partition, and prepares what is executed
		before := proxy.Requests()
		b.run([]*record.Record{rec(o, 1, "")}, write)
		require.Equal(t, 3, proxy.Requests()-before, "and the handler's own")
	})

	t.Run("RedeliveryIsEffectedAndNotRunAgain", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run(recs(o, 3), effect)
		again := recs(newOwner(), 3)
		b.run(again, effect)
		requireOutcomes(t, record.Effected, again...)
		b.requireLedger(3)
		require.Equal(t, 3, b.counted(b.answers, "own"))
	})

	runByID(t, "ProducersDuplicateIsADuplicate", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		first, second := recAs(o, 1, "", "same", "v"), recAs(o, 2, "", "same", "v")
		b.run([]*record.Record{first}, effect)
		b.run([]*record.Record{second}, effect)
		requireOutcomes(t, record.Effected, first)
		requireOutcomes(t, record.Duplicate, second)
		b.requireLedger(1)
	})

	runByID(t, "SameIdTwiceInOneGroupIsOneEffect", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := []*record.Record{
			rec(o, 0, ""), recAs(o, 1, "a", "same", "v"), recAs(o, 2, "b", "same", "v"), rec(o, 3, "b"), rec(o, 4, ""),
		}
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs[0], rs[1], rs[3], rs[4])
		requireOutcomes(t, record.Duplicate, rs[2])
		b.requireLedger(4)
	})

	runByID(t, "SameIdTwiceUnderOneKeyIsOneEffectAndNotARowWithoutIt", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := []*record.Record{
			recAs(o, 0, "a", "same", "v"), rec(o, 1, "b"), recAs(o, 2, "a", "same", "v"), rec(o, 3, "a"),
		}
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs[0], rs[1], rs[3])
		requireOutcomes(t, record.Duplicate, rs[2])
		b.requireLedger(3)
	})

	t.Run("WhatComesBeforeAFailureOfItsKeyIsEffected", func(t *testing.T) {
		t.Parallel()
		for _, name := range slices.Sorted(maps.Keys(failures)) {
			b, o := newBench(t, setup{}), newOwner()
			rs := []*record.Record{rec(o, 0, "a"), rec(o, 1, "a"), rec(o, 2, "a"), rec(o, 3, "a"), rec(o, 4, "b")}
			b.run(rs, unless(2, failures[name]))
			requireOutcomes(t, record.Effected, rs[0], rs[1], rs[4])
			require.Error(t, rs[2].Err, name)
			requireErr(t, record.ErrNotRun, rs[3])
			b.requireLedger(3)
		}
	})

	runByID(t, "WhatComesBeforeAConflictOfItsKeyIsEffected", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{recAs(o, 0, "a", "same", "v")}, effect)
		rs := []*record.Record{rec(o, 1, "a"), recAs(o, 2, "a", "same", "other"), rec(o, 3, "a")}
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs[0])
		requireErr(t, ErrConflict, rs[1])
		requireErr(t, record.ErrNotRun, rs[2])
		b.requireLedger(2)
	})

	runByID(t, "SameIdTwiceAndTheFirstFailsTheSecondRuns", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := []*record.Record{recAs(o, 1, "", "same", "v"), recAs(o, 2, "", "same", "v")}
		b.run(rs, unless(1, func(context.Context, pgx.Tx, *record.Record) error { return errBoom }))
		requireErr(t, errBoom, rs[0])
		requireOutcomes(t, record.Effected, rs[1])
		b.requireLedger(1)
	})

	runByID(t, "SameIdOtherBytesIsAConflictAndNoEffect", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		first, second, behind := recAs(o, 1, "", "same", "v"), recAs(o, 2, "k", "same", "other"), rec(o, 3, "k")
		b.run([]*record.Record{first, rec(o, 0, ""), second, behind}, effect)
		requireOutcomes(t, record.Effected, first)
		requireErr(t, ErrConflict, second)
		requireErr(t, record.ErrNotRun, behind)
		b.requireLedger(2)
		require.Equal(t, 1, b.counted(b.answers, "id_conflict"))
	})

	t.Run("TwoRoutesBothRun", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		other, err := b.in.Route(t.Context(), RouteConfig{Group: "billing", Name: "other"})
		require.NoError(t, err)
		b.run(recs(newOwner(), 2), effect)
		rs := recs(newOwner(), 2)
		finishes(t, func() { other.Run(context.Background(), rs, Apply(effect)) })
		requireOutcomes(t, record.Effected, rs...)
		require.Equal(t, 4, query[int](b, "select count(*) from eff"))
	})

	runByID(t, "ForeignRecordsWithoutAnIdAreNoDuplicatesOfEachOther", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := make([]*record.Record, 5)
		for i := range rs {
			rs[i] = &record.Record{Topic: "orders", TopicID: topicID, Offset: int64(i), Value: []byte("same")}
			rs[i].Headers = []record.Header{{Key: record.UUIDHeader, Value: []byte("")}}
			rs[i].Bind(o, o.soft, "")
			require.NoError(t, Identify(rs[i], Header("id"), CloudEvents(), WatermillUUID()))
			require.NotEmpty(t, rs[i].Identity.ID)
		}
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(5)
	})

	t.Run("FailureIsLeftOutAndCostsOneAttempt", func(t *testing.T) {
		t.Parallel()
		for name, fail := range failures {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b, o := newBench(t, setup{}), newOwner()
				rs := recs(o, 50)
				b.run(rs, unless(25, fail))
				require.Error(t, rs[25].Err)
				require.False(t, rs[25].Settled())
				requireOutcomes(t, record.Effected, without(rs, 25)...)
				b.requireLedger(49)
				failed := 0
				for class, n := range b.attempts {
					if class != "" {
						failed += n
					}
				}
				require.Equal(t, 1, failed, "%v", b.attempts)
				require.Zero(t, query[int](b, "select count(*) from headrace.inbox where coordinates = $1",
					rs[25].Identity.Coordinates))
			})
		}
	})

	t.Run("EverythingFailsAndNothingStands", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := recs(o, 100)
		b.run(rs, failures["ErrorAfterSQL"])
		requireErr(t, errBoom, rs...)
		b.requireLedger(0)
	})

	t.Run("PanicIsItsRecordsFailureWithItsStack", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := recs(o, 3)
		b.run(rs, unless(1, failures["Panic"]))
		var p *fault.PanicError
		require.ErrorAs(t, rs[1].Err, &p)
		require.Equal(t, "boom", p.Value)
		require.Contains(t, string(p.Stack), "failures_test.go")
		b.requireLedger(2)
	})

	runByID(t, "SkipKeepsTheRowAndNothingElse", "of what is done it does not know how it ended", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := recs(o, 40)
		b.run(rs, unless(20, skip))
		requireOutcomes(t, record.Skipped, rs[20])
		requireOutcomes(t, record.Effected, without(rs, 20)...)
		b.requireLedger(39)
		require.Equal(t, 1, query[int](b, "select count(*) from headrace.inbox where state = 1"))
		again := recs(newOwner(), 40)
		b.run(again, effect)
		requireOutcomes(t, record.Skipped, again[20])
		b.requireLedger(39)
	})

	t.Run("FollowersOfAFailedKeyAreNotRunAndComeInOrder", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := make([]*record.Record, 12)
		for i := range rs {
			rs[i] = rec(o, i, map[bool]string{true: "k"}[i == 3 || i == 7 || i == 9])
		}
		b.run(rs, unless(3, failures["ErrorAfterSQL"]))
		requireErr(t, errBoom, rs[3])
		requireErr(t, record.ErrNotRun, rs[7], rs[9])
		b.requireLedger(9)
		chain := []*record.Record{rs[3], rs[7], rs[9]}
		b.run(chain, effect)
		requireOutcomes(t, record.Effected, chain...)
		require.Equal(t, []int32{3, 7, 9}, query[[]int32](b, "select array_agg(n order by ctid) from eff where n in (3, 7, 9)"))
	})

	t.Run("FollowersInAnotherCallOfTheRouteStayBehindToo", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{Writers: 1}}), newOwner()
		running, release := make(chan struct{}), make(chan struct{})
		first := []*record.Record{rec(o, 1, "k")}
		second := []*record.Record{rec(o, 2, "k"), rec(o, 3, "")}
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.rt.Run(context.Background(), first, Apply(func(context.Context, pgx.Tx, *record.Record) error {
				close(running)
				<-release
				return errBoom
			}))
		}()
		await(t, running)
		queued := newCall(context.Background(), second, Apply(effect))
		b.rt.enqueue(queued)
		close(release)
		await(t, done)
		await(t, queued.done)
		requireErr(t, errBoom, first[0])
		requireErr(t, record.ErrNotRun, second[0])
		requireOutcomes(t, record.Effected, second[1])
	})

	t.Run("DeadlineInMidStatementCostsOneAttemptAndNoConnection", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{AttemptTimeout: 2 * time.Second, Writers: 1}}), newOwner()
		rs := recs(o, 400)
		var pids collected[uint32]
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			pids.add(tx.Conn().PgConn().PID())
			if r.Offset == 250 {
				_, err := tx.Exec(ctx, "select pg_sleep(20)")
				return err
			}
			return effect(ctx, tx, r)
		})
		require.Equal(t, fault.ClassTransient, (&fault.Classifier{}).Classify(context.Background(), rs[250].Err).Class)
		requireOutcomes(t, record.Effected, without(rs, 250)...)
		b.requireLedger(399)
		require.Equal(t, 1, b.counted(b.attempts, "transient"))
		require.Len(t, pids.distinct(), 1, "the backend must survive")
	})

	t.Run("DeadlineOfAHandlerThatHandsDownItsOwnContext", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{AttemptTimeout: 2 * time.Second}}), newOwner()
		rs := recs(o, 3)
		b.run(rs, unless(1, func(_ context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Exec(context.Background(), "select pg_sleep(20)") // the server's own time limit ends it
			return err
		}))
		require.Equal(t, fault.ClassTransient, (&fault.Classifier{}).Classify(context.Background(), rs[1].Err).Class)
		b.requireLedger(2)
	})

	t.Run("SlowRecordCutsTheGroupAndNobodyPays", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{cfg: Config{MaxBatchTime: time.Millisecond}, route: RouteConfig{Writers: 1}}), newOwner()
		rs := recs(o, 10)
		b.run(rs, unless(2, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if _, err := tx.Exec(ctx, "select pg_sleep(0.05)"); err != nil {
				return err
			}
			return effect(ctx, tx, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(10)
		require.Greater(t, b.counted(b.groups, "committed"), 1)
	})

	t.Run("RevokeInTheMiddleOfAGroupRollsBackItsRecordsOnly", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		o1, o2 := newOwner(), newOwner()
		mine, theirs := recs(o1, 10), make([]*record.Record, 10)
		for i := range theirs {
			theirs[i] = rec(o2, 100+i, "")
		}
		ctx, revoke := context.WithCancelCause(context.Background())
		gate, release := make(chan struct{}), make(chan struct{})
		b.hold(gate, release)
		await(t, gate)
		apply := func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if r.Offset == 5 {
				revoke(record.ErrRevoked)
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), record.ErrRevoked)
				return ctx.Err()
			}
			return effect(ctx, tx, r)
		}
		done := make(chan struct{})
		other := newCall(context.Background(), theirs, Apply(effect))
		b.rt.enqueue(other)
		go func() {
			defer close(done)
			b.rt.Run(ctx, mine, Apply(apply))
		}()
		b.awaitQueue(2)
		close(release)
		await(t, done)
		await(t, other.done)
		requireErr(t, record.ErrRevoked, mine...)
		requireOutcomes(t, record.Effected, theirs...)
		b.requireLedger(10)
		require.Zero(t, b.counted(b.attempts, "cancelled"))
	})

	t.Run("SoftEndLeavesTheLineAtOnceAndTheRunningGroupAlone", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{Writers: 1}}), newOwner()
		gate, release := make(chan struct{}), make(chan struct{})
		b.hold(gate, release)
		await(t, gate)
		rs := recs(o, 5)
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.rt.Run(context.Background(), rs, Apply(effect))
		}()
		b.awaitQueue(1)
		close(o.soft)
		await(t, done)
		requireErr(t, record.ErrNotRun, rs...)
		close(release)
		b.run(recs(o, 5), effect) // one that begins after the end is not begun
		b.requireLedger(0)
	})

	t.Run("SoftEndDoesNotUndoTheCallThatWasMade", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{Writers: 1}}), newOwner()
		gate, release := make(chan struct{}), make(chan struct{})
		b.hold(gate, release)
		await(t, gate)
		_, err := b.rt.Look(context.Background(), recs(o, 7)) // before the call
		require.NoError(t, err)
		called := func(n int) []*record.Record {
			rs := recs(o, n)
			for _, r := range rs {
				r.Reply = "receipt"
			}
			return rs
		}
		rs := called(5)
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.rt.Run(context.Background(), rs, Apply(effect))
		}()
		b.awaitQueue(1)
		close(o.soft)
		close(release)
		await(t, done)
		requireOutcomes(t, record.Effected, rs...)
		rs = called(7)[5:] // its answer came after the end
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(7)
	})

	t.Run("StuckHandlerIsReportedAndTheOthersGoOn", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{
			cfg:   Config{HardGrace: 100 * time.Millisecond},
			route: RouteConfig{AttemptTimeout: time.Second, Writers: 2},
		})
		rs := recs(newOwner(), 20)
		release := make(chan struct{})
		returned := make(chan struct{})
		b.run(rs, unless(7, func(_ context.Context, tx pgx.Tx, _ *record.Record) error {
			defer close(returned)
			<-release
			_, err := tx.Exec(context.Background(), "insert into eff (n) values (7)")
			return errors.Join(errBoom, err)
		}))
		require.Equal(t, fault.ClassTransient, (&fault.Classifier{}).Classify(context.Background(), rs[7].Err).Class)
		require.ErrorIs(t, rs[7].Err, ErrStuck)
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		b.mu.Lock()
		require.Len(t, b.reports, 1)
		require.Equal(t, "stuck_record", b.reports[0].Kind)
		require.Equal(t, int64(7), b.reports[0].Offset)
		b.mu.Unlock()
		stuck, ok := b.in.Stuck()
		require.True(t, ok)
		require.Equal(t, int64(7), stuck.Offset)
		close(release)
		await(t, returned)
		require.Eventually(t, func() bool { _, ok := b.in.Stuck(); return !ok }, time.Minute, time.Millisecond)
		b.run(recs(newOwner(), 20)[7:8], effect)
		b.requireLedger(20)
	})

	t.Run("ErrorThatPanicsWhenItIsLookedAtFailsItsRecordAlone", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 20)
		var nothing *pgconn.PgError
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			switch r.Offset {
			case 7:
				return nothing
			case 8:
				return fmt.Errorf("wrapped: %w", nothing)
			case 9:
				return hostile{}
			}
			return effect(ctx, tx, r)
		})
		var panicked *fault.PanicError
		require.ErrorAs(t, rs[7].Err, &panicked)
		requireClass(t, fault.ClassPermanent, rs[8:10]...)
		requireOutcomes(t, record.Effected, append(without(rs[:8], 7), rs[10:]...)...)
		b.requireLedger(17)
	})

	t.Run("HandlerThatEndsItsGoroutineFailsAlone", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), 20)
		b.run(rs, unless(7, func(context.Context, pgx.Tx, *record.Record) error {
			runtime.Goexit()
			return nil
		}))
		requireErr(t, errGoexit, rs[7])
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		b.requireLedger(19)
	})

	t.Run("AroundSeesEachRunAndItsError", func(t *testing.T) {
		t.Parallel()
		type key struct{}
		var ends atomic.Int32
		b := newBench(t, setup{route: RouteConfig{Around: func(ctx context.Context, r *record.Record) (context.Context, func(error)) {
			return context.WithValue(ctx, key{}, r.Offset), func(err error) {
				if errors.Is(err, errBoom) {
					ends.Add(1)
				}
			}
		}}})
		rs := recs(newOwner(), 3)
		b.run(rs, func(ctx context.Context, _ pgx.Tx, r *record.Record) error {
			require.Equal(t, r.Offset, ctx.Value(key{}))
			require.NotNil(t, Tx(ctx))
			if r.Offset == 1 {
				return errBoom
			}
			return effect(ctx, Tx(ctx), r)
		})
		require.Equal(t, int32(1), ends.Load())
		b.requireLedger(2)
	})

	t.Run("RoutesOwnRulesNameTheClassOfAnAttemptAndStand", func(t *testing.T) {
		t.Parallel()
		own := &fault.Classifier{Rules: []fault.Rule{func(err error) (fault.Fault, bool) {
			switch {
			case errors.Is(err, errBoom):
				return fault.Fault{Class: fault.ClassBusy, Rule: "boom"}, true
			case errors.As(err, new(*fault.StatusError)):
				return fault.Fault{Class: fault.ClassAmbiguous, Rule: "payment"}, true
			}
			return fault.Fault{}, false
		}}}
		fails := func(_ context.Context, _ pgx.Tx, r *record.Record) error {
			if r.Offset == 0 {
				return errBoom
			}
			return &fault.StatusError{Code: 500}
		}
		rs := recs(newOwner(), 2)
		b := newBench(t, setup{route: RouteConfig{Classifier: own, Writers: 1}})
		b.run(rs, fails)
		require.Equal(t, map[string]int{"busy": 1, "ambiguous": 1}, b.attempts)
		require.Equal(t, fault.ClassAmbiguous, own.Classify(t.Context(), rs[1].Err).Class, "the route's word stands")

		rs = recs(newOwner(), 2)
		b = newBench(t, setup{})
		b.run(rs, fails)
		require.Equal(t, map[string]int{"permanent": 1, "transient": 1}, b.attempts, "nothing is ambiguous before COMMIT")
	})

	t.Run("UniqueViolationInAHandlersTableIsPermanentAndNoDuplicate", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.exec("insert into uniq values (1)")
		rs := recs(o, 3)
		b.run(rs, unless(1, failures["UniqueViolation"]))
		var pg *pgconn.PgError
		require.ErrorAs(t, rs[1].Err, &pg)
		require.Equal(t, fault.ClassPermanent, (&fault.Classifier{}).Classify(context.Background(), rs[1].Err).Class)
		b.requireLedger(2)
	})
}
