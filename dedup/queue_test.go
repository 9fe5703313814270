package dedup

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// execModes are those of pgx.
var execModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

func withExecMode(t *testing.T, mode string) string {
	t.Helper()
	return pgtest.DSN(t, migrations.Up, schema) + "&default_query_exec_mode=" + mode
}

// unsent are the ways in which what a handler has queued can fail.
var unsent = map[string]func(b *pgx.Batch){
	"UnencodableArgument": func(b *pgx.Batch) { b.Queue("insert into eff (n) values ($1)", make(chan int)) },
	"ArgumentOfNoNumber":  func(b *pgx.Batch) { b.Queue("insert into eff (n) values ($1)", "seven") },
	"ArgumentMissing":     func(b *pgx.Batch) { b.Queue("insert into eff (n, note) values ($1, $2)", 1) },
	"SyntaxError":         func(b *pgx.Batch) { b.Queue("insert unto eff (n) values (1)") },
	"NoSuchTable":         func(b *pgx.Batch) { b.Queue("insert into nowhere values (1)") },
	"SQLError":            func(b *pgx.Batch) { b.Queue("select 1/(n - 1) from eff") },
	"Commit":              func(b *pgx.Batch) { b.Queue("commit") },
	"SeveralStatements":   func(b *pgx.Batch) { b.Queue("select 1; select 2") },
	"NoStatement":         func(b *pgx.Batch) { b.Queue("-- nothing") },
	"CopyFromStdin":       func(b *pgx.Batch) { b.Queue("copy eff from stdin") },
	"Panic":               func(*pgx.Batch) { panic("boom") },
}

func TestQueue_OneThatFailsIsLeftOutAlone(t *testing.T) {
	t.Parallel()
	eachStore(t, testQueueOneThatFailsIsLeftOutAlone)
}

func testQueueOneThatFailsIsLeftOutAlone(t *testing.T) {
	t.Parallel()
	const size = 500
	for _, mode := range execModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{
				dsn: withExecMode(t, mode), cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1},
			})
			b.groupsOf(size)
			for name, queue := range unsent {
				for _, at := range []int{0, 250, 499} {
					b.exec("truncate eff, headrace.inbox, headrace.offsets")
					before, groups := b.in.pool.Stat().NewConnsCount(), b.counted(b.groups, "committed")
					clear(b.attempts)
					rs := recs(newOwner(), size)
					b.runWork(rs, queueUnless(int64(at), func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
						_ = queueEffect(ctx, pending, r)
						pending.Queue("insert into eff (n) values (1)")
						queue(pending)
						return nil
					}))
					of := fmt.Sprintf("%s at %d: %v", name, at, rs[at].Err)
					require.Error(t, rs[at].Err, of)
					require.NotErrorIs(t, rs[at].Err, record.ErrNotRun, of)
					require.True(t, charged(rs[at]), of)
					requireOutcomes(t, record.Effected, without(rs, at)...)
					b.requireLedger(size - 1)
					require.LessOrEqual(t, b.in.pool.Stat().NewConnsCount()-before, int64(1), of)
					require.Equal(t, 1, b.counted(b.groups, "committed")-groups, of)
					require.Equal(t, size-1, b.counted(b.attempts, ""), of)
					require.Equal(t, 1, b.counted(b.attempts, "permanent"), of)
				}
			}
			require.Equal(t, int64(1), b.in.pool.Stat().NewConnsCount()-0, "connections that were lost")
		})
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	eachTrip(t, testQueue)
}

func testQueue(t *testing.T) {
	t.Parallel()

	t.Run("HealthyGroupIsTwoTrips", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
		b.runWork(recs(newOwner(), 50), Queue(queueEffect))
		b.exec("truncate eff, headrace.inbox, headrace.offsets")
		before := proxy.Requests()
		rs := recs(newOwner(), 50)
		b.runWork(rs, Queue(queueEffect))
		requireOutcomes(t, record.Effected, rs...)
		// A claim acquires its partition once, and COMMIT with its mark waits for the effects.
		require.Equal(t, each(t, 2, 4), proxy.Requests()-before)
		b.requireLedger(50)
	})

	t.Run("QueuesNothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 3)
		b.runWork(rs, Queue(func(context.Context, *pgx.Batch, *record.Record) error { return nil }))
		requireOutcomes(t, record.Effected, rs...)
		b.beside(3)
		if storeOf(t) == ByOffset {
			b.requireLedger(0)
			return
		}
		require.Equal(t, 3, query[int](b, "select count(*) from headrace.inbox"))
	})

	t.Run("HasABatchAndNoTransaction", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 1)
		b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			require.Nil(t, Tx(ctx))
			require.Same(t, pending, Pending(ctx))
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.WithinDuration(t, time.Now().Add(5*time.Second), deadline, 5*time.Second)
			return queueEffect(ctx, pending, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
	})

	t.Run("SkipLeavesTheRowAndNoEffect", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 5)
		b.runWork(rs, queueUnless(2, func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			_ = queueEffect(ctx, pending, r)
			return fault.Skip("not for us")
		}))
		requireOutcomes(t, record.Skipped, rs[2])
		requireOutcomes(t, record.Effected, without(rs, 2)...)
		b.beside(1)
		b.requireLedger(4)
		require.Equal(t, each(t, 1, 0), query[int](b, "select count(*) from headrace.inbox where state = 1"))
	})

	t.Run("FollowersOfAFailedKeyAreNotRunAndComeLaterInOrder", func(t *testing.T) {
		t.Parallel()
		for name, queue := range map[string]func(*pgx.Batch){
			"AtTheHandler": unsent["Panic"], "Encoding": unsent["UnencodableArgument"], "Described": unsent["SyntaxError"],
			"AtTheServer": func(b *pgx.Batch) { b.Queue("select 1/0") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}}) // a cut would leave them behind too
				o := newOwner()
				rs := make([]*record.Record, 20)
				for i := range rs {
					key := ""
					if i == 3 || i == 7 || i == 9 {
						key = "same"
					}
					rs[i] = rec(o, i, key)
				}
				b.runWork(rs, queueUnless(3, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
					queue(pending)
					return nil
				}))
				require.True(t, charged(rs[3]))
				requireErr(t, record.ErrNotRun, rs[7], rs[9])
				b.requireLedger(17)
				var ran []int64
				left := []*record.Record{rs[3], rs[7], rs[9]}
				b.runWork(left, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
					ran = append(ran, r.Offset)
					return queueEffect(ctx, pending, r)
				}))
				require.Equal(t, []int64{3, 7, 9}, ran)
				b.requireLedger(20)
			})
		}
	})

	t.Run("StatementsAreExecutedAtMostTwice", func(t *testing.T) {
		t.Parallel()
		const size = 60
		b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
		b.exec("create sequence runs")
		rs := recs(newOwner(), size)
		b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			pending.Queue("select nextval('runs')") // which no rollback undoes
			if r.Offset%10 == 5 {
				pending.Queue("select 1/0")
			}
			return queueEffect(ctx, pending, r)
		}))
		b.requireLedger(size - 6)
		require.LessOrEqual(t, query[int](b, "select last_value from runs"), 2*size)
	})

	t.Run("ManyFailures", func(t *testing.T) {
		t.Parallel()
		for name, bad := range map[string]func(n int64) bool{
			"Three": func(n int64) bool { return n == 1 || n == 40 || n == 63 },
			"All":   func(int64) bool { return true },
			"Half":  func(n int64) bool { return n%2 == 0 },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{route: RouteConfig{Writers: 1}})
				rs := recs(newOwner(), firstLimit)
				b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
					_ = queueEffect(ctx, pending, r)
					if bad(r.Offset) {
						pending.Queue("select 1/$1::int", 0)
					}
					return nil
				}))
				good := 0
				for _, r := range rs {
					if bad(r.Offset) {
						require.True(t, charged(r), "%d: %v", r.Offset, r.Err)
						continue
					}
					good++
					requireOutcomes(t, record.Effected, r)
				}
				b.requireLedger(good)
				require.Equal(t, firstLimit-good, b.counted(b.attempts, "permanent"))
				require.Equal(t, good, b.counted(b.attempts, ""))
			})
		}
	})

	runByID(t, "DuplicatesInAGroupAndAcrossGroups", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		o, again := newOwner(), newOwner()
		rs := recs(o, 10)
		rs = append(rs, recAs(o, 10, "", "id-3", "value-3"))
		b.runWork(rs, Queue(queueEffect))
		requireOutcomes(t, record.Effected, rs[:10]...)
		requireOutcomes(t, record.Duplicate, rs[10])
		more := recs(again, 10)
		b.runWork(more, Queue(queueEffect))
		requireOutcomes(t, record.Effected, more...)
		b.requireLedger(10)
	})

	t.Run("DeferredConstraintIsItsRecordsFailure", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		b.exec("insert into late values (7)")
		rs := recs(newOwner(), 20)
		b.runWork(rs, queueUnless(7, func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			pending.Queue("insert into late values (7)")
			return queueEffect(ctx, pending, r)
		}))
		require.True(t, charged(rs[7]))
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		b.requireLedger(19)
	})

	t.Run("StatementOverItsTimeoutIsTransient", func(t *testing.T) {
		t.Parallel()
		for name, size := range map[string]int{"Alone": 1, "InCompany": 40} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{route: RouteConfig{Writers: 1, AttemptTimeout: 300 * time.Millisecond}})
				rs := recs(newOwner(), size)
				slow := size / 2
				b.runWork(rs, queueUnless(int64(slow), func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
					pending.Queue("select pg_sleep(20)")
					return queueEffect(ctx, pending, r)
				}))
				requireClass(t, fault.ClassTransient, rs[slow])
				requireOutcomes(t, record.Effected, without(rs, slow)...)
				b.requireLedger(size - 1)
				require.Equal(t, 1, b.counted(b.attempts, "transient"))
			})
		}
	})

	t.Run("ManyThatAreTooSlowTogetherAreNobodysFailure", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1, AttemptTimeout: time.Second}})
		rs := recs(newOwner(), 10)
		b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			pending.Queue("select pg_sleep(0.15)")
			return queueEffect(ctx, pending, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(10)
		require.Zero(t, b.counted(b.attempts, "transient"))
		b.rt.mu.Lock()
		defer b.rt.mu.Unlock()
		require.Equal(t, 1, b.rt.pace.limit, "the groups after it are smaller")
	})

	t.Run("HardEndCancelsThePipeline", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		ctx, cancel := context.WithCancelCause(context.Background())
		b.when("state = 'active' and query like '%pg_sleep(21)%' and query !~ 'activity'", func() { cancel(record.ErrRevoked) })
		rs := recs(newOwner(), 10)
		finishes(t, func() {
			b.rt.Run(ctx, rs, Queue(queueUnless(5, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
				pending.Queue("select pg_sleep(21)")
				return nil
			})))
		})
		requireErr(t, record.ErrRevoked, rs...)
		b.requireLedger(0)
		require.Zero(t, b.counted(b.attempts, "transient"))
		b.runWork(recs(newOwner(), 10), Queue(queueEffect))
		b.requireLedger(10)
	})

	t.Run("BackendThatDiesInThePipelineIsNobodysFailure", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		once := true
		rs := recs(newOwner(), 50)
		b.runWork(rs, queueUnless(25, func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			if once {
				pending.Queue("select pg_terminate_backend(pg_backend_pid())")
			}
			once = false
			return queueEffect(ctx, pending, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(50)
	})

	t.Run("RecordThatKillsItsBackendIsACrashLoop", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 8)
		finishes(t, func() {
			b.rt.Run(context.Background(), rs, queueUnless(4, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
				pending.Queue("select pg_terminate_backend(pg_backend_pid())")
				return nil
			}))
		})
		requireErr(t, ErrCrashLoop, rs[4])
		requireOutcomes(t, record.Effected, without(rs, 4)...)
		b.requireLedger(7)
	})

	t.Run("EveryTripIsCutOnce", func(t *testing.T) {
		t.Parallel()
		const size = 20
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
		work := queueUnless(10, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
			pending.Queue("select 1/0")
			return nil
		})
		b.runWork(recs(newOwner(), size), work) // its connection knows all texts
		b.exec("truncate eff, headrace.inbox, headrace.offsets")
		before := proxy.Requests()
		b.runWork(recs(newOwner(), size), work)
		trips := proxy.Requests() - before
		require.Equal(t, each(t, 3, 5), trips)
		for i := range trips {
			for _, cut := range []pgtest.Action{pgtest.CutReply, pgtest.CutBefore} {
				b.exec("truncate eff, headrace.inbox, headrace.offsets")
				rs := recs(newOwner(), size)
				met := proxy.Once(pgtest.At(proxy.Requests()+i), cut)
				b.runUntilCharged(rs, work)
				await(t, met)
				requireOutcomes(t, record.Effected, without(rs, 10)...)
				require.True(t, charged(rs[10]))
				b.requireLedger(size - 1)
			}
		}
	})

	t.Run("LockConflictIsNobodysFailure", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		tx, err := b.pool.Begin(context.Background())
		require.NoError(t, err)
		_, err = tx.Exec(context.Background(), "update acc set balance = 1 where id = 5")
		require.NoError(t, err)
		b.when("wait_event_type = 'Lock'", func() { require.NoError(t, tx.Rollback(context.Background())) })
		rs := recs(newOwner(), 10)
		b.runWork(rs, queueUnless(4, func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			pending.Queue("update acc set balance = 2 where id = 5")
			return queueEffect(ctx, pending, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(10)
	})

	t.Run("NamedArgumentsAreRewritten", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 3)
		b.runWork(rs, Queue(func(_ context.Context, pending *pgx.Batch, r *record.Record) error {
			pending.Queue("insert into eff (n, note) values (@n, @note)", pgx.NamedArgs{"n": r.Offset, "note": ""})
			return nil
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(3)
	})

	t.Run("MoreTextsThanTheConnectionKeeps", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{dsn: pgtest.DSN(t, migrations.Up, schema) + "&statement_cache_capacity=16", route: RouteConfig{Writers: 1}})
		for range 5 {
			b.exec("truncate eff, headrace.inbox, headrace.offsets")
			rs := recs(newOwner(), 50)
			b.runWork(rs, Queue(func(_ context.Context, pending *pgx.Batch, r *record.Record) error {
				pending.Queue(fmt.Sprintf("insert into eff (n, note) values ($1, '%d')", r.Offset), r.Offset)
				return nil
			}))
			requireOutcomes(t, record.Effected, rs...)
			b.requireLedger(50)
		}
		conn, err := b.in.pool.Acquire(context.Background())
		require.NoError(t, err)
		defer conn.Release()
		var prepared int
		require.NoError(t, conn.QueryRow(context.Background(),
			"select count(*) from pg_prepared_statements where name like 'headrace%'").Scan(&prepared))
		require.LessOrEqual(t, prepared, 100)
	})
}
