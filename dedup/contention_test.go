package dedup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// rival holds inbox rows of n ids in a transaction of its own, as another member does while its handlers run.
func (b *workbench) rival(rs []*record.Record) pgx.Tx {
	b.t.Helper()
	tx, err := b.pool.Begin(context.Background())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	for _, r := range rs {
		_, err := tx.Exec(context.Background(), `insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates)
			values ($1, $2, $3, $4)`, b.rt.consumer, r.Identity.Key.String(), r.Identity.ValueHash, r.Identity.Coordinates)
		require.NoError(b.t, err)
		_, err = tx.Exec(context.Background(), "insert into eff (n) values ($1)", r.Offset)
		require.NoError(b.t, err)
	}
	return tx
}

func requireClass(t *testing.T, want fault.Class, rs ...*record.Record) {
	t.Helper()
	for _, r := range rs {
		require.Error(t, r.Err)
		require.Equal(t, want, (&fault.Classifier{}).Classify(context.Background(), r.Err).Class, "%v", r.Err)
	}
}

// inLineOrInHand says whether the three calls beside the one that runs are in line, or have another group.
func inLineOrInHand(rt *Route) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return len(rt.queue) == 3 || rt.inHand > 1
}

func TestContention(t *testing.T) {
	t.Parallel()
	eachWay(t, testContention)
}

func testContention(t *testing.T) {
	t.Parallel()

	for _, n := range []int{1, 10, 500} {
		runByID(t, fmt.Sprintf("OwnerOf%dOf500Hangs", n), "it knows no identities", func(t *testing.T) {
			t.Parallel()
			b, o := newBench(t, setup{}), newOwner()
			rs := recs(o, 500)
			b.rival(rs[:n])
			b.run(rs, effect)
			for _, r := range rs[:n] {
				if n == 500 && r.Err == nil {
					t.Fatal("a record in other hands was settled")
				}
			}
			if n < atMostBusy {
				requireClass(t, fault.ClassBusy, rs[:n]...)
			}
			requireOutcomes(t, record.Effected, rs[n:]...)
			require.Zero(t, b.counted(b.attempts, "busy"), "nobody pays")
		})
	}

	// One that waited for the route's lock in Postgres would keep the versions of a hot row with its snapshot.
	t.Run("NobodyOfTheProcessWaitsForTheRoutesLockInPostgres", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{route: RouteConfig{Writers: 4}}), newOwner()
		b.rt.mu.Lock()
		b.rt.hot = time.Now().Add(time.Hour)
		b.rt.mu.Unlock()
		b.groupsOf(10)
		var begun atomic.Int32
		handler := func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			for begun.Add(1) == 1 && !inLineOrInHand(b.rt) && backoff.Wait(ctx, time.Millisecond) {
				begun.Store(0)
			}
			var others int
			err := b.pool.QueryRow(ctx, `select count(*) from pg_stat_activity where datname = current_database()
				and pid not in ($1, pg_backend_pid()) and (xact_start is not null or wait_event = 'advisory')`, tx.Conn().PgConn().PID()).Scan(&others)
			if err == nil && others > 0 {
				err = fmt.Errorf("%d others are in a transaction", others)
			}
			if err != nil {
				return fault.Permanent(err)
			}
			return effect(ctx, tx, r)
		}
		all := recs(o, 40)
		var wg sync.WaitGroup
		for rs := range slices.Chunk(all, 10) {
			wg.Go(func() { b.run(rs, handler) })
		}
		wg.Wait()
		requireOutcomes(t, record.Effected, all...)
		b.requireLedger(40)
	})

	t.Run("OwnerCommitsAndItIsTheirEffect", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 20)
		tx := b.rival(rs[:5])
		b.afterLockWait(func() { require.NoError(t, tx.Commit(context.Background())) })
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...) // same coordinates: the same record on the other member
		b.requireLedger(20)
	})

	runByID(t, "OwnerOfADuplicateCommits", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 20)
		theirs := recAs(newOwner(), 900, "", "id-3", "value-3")
		tx := b.rival([]*record.Record{theirs})
		b.afterLockWait(func() { require.NoError(t, tx.Commit(context.Background())) })
		b.run(rs, effect)
		requireOutcomes(t, record.Duplicate, rs[3])
		requireOutcomes(t, record.Effected, without(rs, 3)...)
		b.requireLedger(20)
	})

	t.Run("OwnerRollsBackAndWeRunIt", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 20)
		tx := b.rival(rs[:5])
		b.afterLockWait(func() { require.NoError(t, tx.Rollback(context.Background())) })
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(20)
		require.Equal(t, 20, b.counted(b.attempts, ""))
	})

	t.Run("SoftEndEndsTheWaitForAnother", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := recs(o, 20)
		gate := b.rivalGate()
		defer func() { _ = gate.Rollback(context.Background()) }()
		b.afterLockWait(func() { close(o.soft) })
		b.run(rs, effect)
		requireErr(t, record.ErrNotRun, rs...)
	})

	t.Run("HardEndEndsTheWaitForAnother", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := recs(o, 20)
		gate := b.rivalGate()
		defer func() { _ = gate.Rollback(context.Background()) }()
		ctx, revoke := context.WithCancelCause(context.Background())
		b.afterLockWait(func() { revoke(record.ErrLost) })
		finishes(t, func() { b.rt.Run(ctx, rs, Apply(effect)) })
		requireErr(t, record.ErrLost, rs...)
	})

	runByID(t, "TwoGroupsOfOneProcessNeverMeetOnOneId", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		var wg sync.WaitGroup
		all := make([][]*record.Record, 8)
		for w := range all {
			all[w] = recs(newOwner(), 50)
			for i, r := range all[w] { // another partition: a producer's duplicates
				r.Partition = int32(w)
				require.NoError(t, Identify(r, Header("id")), i)
			}
			wg.Go(func() { b.run(all[w], effect) })
		}
		wg.Wait()
		b.requireLedger(50)
		effected := 0
		for _, rs := range all {
			for _, r := range rs {
				require.NoError(t, r.Err)
				if r.Outcome() == record.Effected {
					effected++
				} else {
					require.Equal(t, record.Duplicate, r.Outcome())
				}
			}
		}
		require.Equal(t, 50, effected)
	})

	t.Run("GroupsThatMeetOnRowsCostNobodyAnAttempt", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		members := []*workbench{newBench(t, setup{dsn: dsn}), newBench(t, setup{dsn: dsn})}
		var wg sync.WaitGroup
		for m, b := range members {
			for w := range 3 {
				o := newOwner()
				rs := make([]*record.Record, 200)
				for i := range rs {
					rs[i] = rec(o, m*100_000+w*10_000+i, "")
					rs[i].Partition = int32(m*3 + w)
				}
				seed := rand.New(rand.NewPCG(uint64(m), uint64(w)))
				rows := seed.Perm(300)
				apply := func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
					if _, err := tx.Exec(ctx, "update acc set balance = balance + 1 where id = $1", 1+rows[r.Offset%300]); err != nil {
						return err
					}
					return effect(ctx, tx, r)
				}
				wg.Go(func() {
					b.run(rs, apply)
					requireOutcomes(t, record.Effected, rs...)
				})
			}
		}
		wg.Wait()
		members[0].requireLedger(1200)
		require.Equal(t, 1200, query[int](members[0], "select sum(balance)::int from acc"))
		for _, b := range members {
			require.Zero(t, b.counted(b.attempts, "transient")+b.counted(b.attempts, "busy"), "%v", b.attempts)
		}
	})

	t.Run("RowThatSomebodyElseHoldsIsBusyAfterThreeTimesAlone", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "update acc set balance = 0 where id = 1")
		require.NoError(t, err)
		rs := recs(newOwner(), 10)
		b.run(rs, unless(4, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Exec(ctx, "update acc set balance = 1 where id = 1")
			return err
		}))
		requireClass(t, fault.ClassBusy, rs[4])
		requireOutcomes(t, record.Effected, without(rs, 4)...)
		b.requireLedger(9)
	})

	runByID(t, "SerializationFailureIsRetriedFree", "it runs read committed only", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Isolation: pgx.Serializable}})
		var wg sync.WaitGroup
		for w := range 4 {
			o := newOwner()
			rs := make([]*record.Record, 10)
			for i := range rs {
				rs[i] = rec(o, w*1000+i, "")
			}
			wg.Go(func() {
				b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
					if _, err := tx.Exec(ctx, "insert into eff (n) select $1 from (select count(*) from eff) x", r.Offset); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "update acc set balance = balance + 1 where id = 1")
					return err
				})
				for _, r := range rs {
					if r.Err != nil { // three times alone: charged, as the table says, but never lost and never twice
						requireClass(t, fault.ClassTransient, r)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, query[int](b, "select count(*) from eff"), query[int](b, "select count(*) from headrace.inbox"))
		require.Equal(t, query[int](b, "select count(*) from eff"), query[int](b, "select balance from acc where id = 1"))
	})
}

// rivalGate holds the route's lock exclusively, as another process does after a conflict.
func (b *workbench) rivalGate() pgx.Tx {
	b.t.Helper()
	tx, err := b.pool.Begin(context.Background())
	require.NoError(b.t, err)
	_, err = tx.Exec(context.Background(), "select pg_advisory_xact_lock($1::int, $2::int)", routeLock, b.rt.consumer)
	require.NoError(b.t, err)
	return tx
}

// afterLockWait calls f once a backend of this database waits for a lock.
func (b *workbench) afterLockWait(f func()) {
	b.t.Helper()
	b.when("wait_event_type = 'Lock'", f)
}

// when calls f once a backend of this database is seen to be so.
func (b *workbench) when(condition string, f func()) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	done := make(chan struct{})
	b.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for backoff.Wait(ctx, 5*time.Millisecond) {
			var seen bool
			err := b.pool.QueryRow(ctx, "select exists (select 1 from pg_stat_activity where "+
				"datname = current_database() and pid <> pg_backend_pid() and "+condition+")").Scan(&seen)
			if err == nil && seen {
				f()
				return
			}
		}
	}()
}
