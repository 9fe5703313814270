package dedup

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func TestCommit(t *testing.T) {
	t.Parallel()
	eachWay(t, testCommit)
}

func testCommit(t *testing.T) {
	t.Parallel()

	for name, cut := range map[string]pgtest.Action{"ReplyIsLost": pgtest.CutReply, "RequestIsLost": pgtest.CutBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t, migrations.Up, schema)
			proxy := pgtest.NewProxy(t, dsn)
			b := newBench(t, setup{
				dsn: proxy.DSN(), look: dsn, cfg: Config{MaxBatchTime: time.Minute}, route: RouteConfig{Writers: 1},
			})
			rs := recs(newOwner(), firstLimit) // one group
			met := proxy.Once(pgtest.Commit, cut)
			b.run(rs, effect)
			await(t, met)
			requireOutcomes(t, record.Effected, rs...)
			b.requireLedger(firstLimit)
			require.Equal(t, 1, b.counted(b.groups, "unknown"))
			if name == "ReplyIsLost" {
				require.Equal(t, firstLimit, b.counted(b.answers, "own"))
			}
		})
	}

	t.Run("EveryTripIsCutOnce", func(t *testing.T) {
		t.Parallel()
		const size = 20
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		// A cut of the group by time would make another number of trips on each run.
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
		b.run(recs(newOwner(), size), unless(10, failures["ErrorAfterSQL"])) // its connection has prepared all there is
		b.exec("truncate eff, headrace.inbox, headrace.offsets")
		before := proxy.Requests()
		b.run(recs(newOwner(), size), unless(10, failures["ErrorAfterSQL"]))
		trips := proxy.Requests() - before
		require.Greater(t, trips, size)
		for i := range trips {
			for _, cut := range []pgtest.Action{pgtest.CutReply, pgtest.CutBefore} {
				b.exec("truncate eff, headrace.inbox, headrace.offsets")
				rs := recs(newOwner(), size)
				met := proxy.Once(pgtest.At(proxy.Requests()+i), cut)
				b.run(rs, unless(10, failures["ErrorAfterSQL"]))
				await(t, met)
				requireErr(t, errBoom, rs[10])
				requireOutcomes(t, record.Effected, without(rs, 10)...)
				b.requireLedger(size - 1)
			}
		}
	})

	t.Run("CommitThatIsAlwaysTooSlowChargesItsCulprit", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{CommitTimeout: time.Second}, route: RouteConfig{Writers: 1}})
		b.exec(`create function nap() returns trigger language plpgsql as $$ begin perform pg_sleep(30); return null; end $$`)
		b.exec(`create constraint trigger nap after insert on eff deferrable initially deferred for each row
			when (new.n = 1) execute function nap()`)
		rs := recs(newOwner(), 3)
		b.runUntilCharged(rs, Apply(effect))
		requireClass(t, fault.ClassTransient, rs[1])
		requireErr(t, errSlowCommit, rs[1])
		requireOutcomes(t, record.Effected, rs[0], rs[2])
		b.requireLedger(2)
		require.Positive(t, b.counted(b.groups, "unknown"))
	})

	t.Run("DeferredConstraintChargesItsCulpritAlone", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		b.exec("insert into late values (7)")
		rs := recs(newOwner(), 30)
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if _, err := tx.Exec(ctx, "insert into late values ($1)", r.Offset); err != nil {
				return err
			}
			return effect(ctx, tx, r)
		})
		var pg *pgconn.PgError
		require.ErrorAs(t, rs[7].Err, &pg)
		require.Equal(t, "23505", pg.Code)
		requireClass(t, fault.ClassPermanent, rs[7])
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		b.requireLedger(29)
		require.Equal(t, 1, b.counted(b.attempts, "permanent"))
	})

	t.Run("DeferredTriggerThatRaisesTheInboxsOwnCodeChargesItsCulpritAlone", func(t *testing.T) {
		t.Parallel()
		for name, work := range map[string]Work{"executed": Apply(effect), "queued": Queue(queueEffect), "grouped": Batch(batchEffect)} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{})
				b.exec(`create function raising() returns trigger language plpgsql as $$
					begin raise exception 'at commit' using errcode = 'HR001'; end $$`)
				b.exec(`create constraint trigger raising after insert on eff deferrable initially deferred for each row
					when (new.n = 7) execute function raising()`)
				rs := recs(newOwner(), 20)
				b.runWork(rs, work)
				requireClass(t, fault.ClassPermanent, rs[7])
				requireOutcomes(t, record.Effected, without(rs, 7)...)
				b.requireLedger(19)
			})
		}
	})

	t.Run("BackendsAreTerminatedAndNobodyPays", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 200)
		killed := false
		b.run(rs, unless(100, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if !killed {
				killed = true
				pgtest.Terminate(t, b.pool)
			}
			return effect(ctx, tx, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(200)
		require.Zero(t, b.counted(b.attempts, "unavailable"))
	})

	// An administrator, a pooler that restarts, a proxy that resets: all connections end at once, again and again.
	t.Run("RecordThatRunsWhileAllConnectionsEndIsNoKiller", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		r := recs(newOwner(), 1)
		ends := 0
		for range 20 {
			b.run(r, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
				if ends++; ends > 8 {
					return effect(ctx, tx, r[0])
				}
				_, err := tx.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() order by pid = pg_backend_pid()")
				return err
			})
			if r[0].Settled() {
				break
			}
			requireClass(t, fault.ClassUnavailable, r[0])
		}
		requireOutcomes(t, record.Effected, r...)
	})

	t.Run("LockThatIsNotGivenIsNoFaultOfTheRecord", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		r := recs(newOwner(), 1)
		migrating, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = migrating.Exec(t.Context(), "lock table eff in access exclusive mode")
		require.NoError(t, err)
		b.run(r, effect)
		requireClass(t, fault.ClassBusy, r[0])
		require.NoError(t, migrating.Rollback(t.Context()))
		b.run(r, effect)
		requireOutcomes(t, record.Effected, r...)
	})

	t.Run("RecordThatKillsItsBackendIsACrashLoopAfterThreeTimesAlone", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 50)
		b.run(rs, unless(20, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		}))
		requireErr(t, ErrCrashLoop, rs[20])
		requireOutcomes(t, record.Effected, without(rs, 20)...)
		b.requireLedger(49)
	})

	t.Run("DatabaseAwayIsUnavailableAndThenGoesOn", func(t *testing.T) {
		t.Parallel()
		proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up, schema))
		b := newBench(t, setup{dsn: proxy.DSN()})
		rs := recs(newOwner(), 10)
		proxy.Down()
		b.run(rs, effect)
		requireClass(t, fault.ClassUnavailable, rs...)
		require.NoError(t, proxy.Accept())
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(10)
		require.Equal(t, 10, b.counted(b.attempts, ""))
	})

	t.Run("TableGoneHoldsAndKillsNothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		o := newOwner()
		b.run([]*record.Record{rec(o, 9, "")}, effect) // its partition is acquired
		b.exec("alter table headrace.inbox rename to elsewhere; alter table headrace.offsets rename to there")
		rs := recs(o, 3)
		b.run(rs, effect)
		requireClass(t, fault.ClassUnavailable, rs...)
		rs = rs[:1]
		b.run(rs, effect)
		requireClass(t, fault.ClassUnavailable, rs...)
	})

	t.Run("CancelledAttemptKeepsThePooledConnection", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		before := b.in.pool.Stat().NewConnsCount()
		for range 3 {
			ctx, cancel := context.WithCancelCause(context.Background())
			b.when("state = 'active' and query like 'select pg_sleep%'", func() { cancel(record.ErrRevoked) })
			rs := recs(newOwner(), 1)
			finishes(t, func() {
				b.rt.Run(ctx, rs, Apply(func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
					_, err := tx.Exec(ctx, "select pg_sleep(20)")
					return err
				}))
			})
			requireErr(t, record.ErrRevoked, rs...)
		}
		b.run(recs(newOwner(), 1), effect)
		require.Equal(t, before, b.in.pool.Stat().NewConnsCount())
		b.requireLedger(1)
	})
}

func TestOpen(t *testing.T) {
	t.Parallel()
	eachStore(t, testOpen)
}

func testOpen(t *testing.T) {
	t.Parallel()

	t.Run("WithoutSchemaIsRefusedWithAHint", func(t *testing.T) {
		t.Parallel()
		_, err := Open(t.Context(), pgtest.New(t), Config{})
		require.ErrorIs(t, err, ErrNoSchema)
		require.ErrorIs(t, err, migrations.ErrVersion)
		require.ErrorContains(t, err, "migrations.Up")
	})

	t.Run("SynchronousCommitOffIsRefused", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.Pool(t, altered(t, "synchronous_commit = off"))
		_, err := Open(t.Context(), pool, Config{})
		require.ErrorContains(t, err, "synchronous_commit")
	})

	t.Run("ConfigurationThatCannotBeIsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := Open(t.Context(), nil, Config{MaxConns: 1})
		require.ErrorContains(t, err, "MaxConns (1)")
		_, err = Open(t.Context(), nil, Config{Writers: -1})
		require.ErrorContains(t, err, "Writers (-1)")
		b := newBench(t, setup{})
		for want, cfg := range map[string]RouteConfig{
			`Name ("")`:     {Group: "g"},
			"needs Horizon": {Group: "g", Name: "r", Retention: time.Hour},
			"isolation":     {Group: "g", Name: "r", Isolation: pgx.ReadUncommitted},
		} {
			_, err := b.in.Route(t.Context(), cfg)
			require.ErrorContains(t, err, want)
		}
	})

	t.Run("RouteKeepsItsNumber", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		again, err := b.in.Route(t.Context(), named(RouteConfig{Store: storeOf(t)}))
		require.NoError(t, err)
		require.Equal(t, b.rt.consumer, again.consumer)
	})

	t.Run("EachExecModeWorks", func(t *testing.T) {
		t.Parallel()
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
			pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
		} {
			b := newBench(t, setup{})
			cfg, err := pgxpool.ParseConfig(b.dsn)
			require.NoError(t, err)
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			in, err := Open(t.Context(), pool, Config{})
			require.NoError(t, err, mode)
			rt, err := in.Route(t.Context(), named(RouteConfig{Store: storeOf(t)}))
			require.NoError(t, err)
			rs := recs(newOwner(), 40)
			finishes(t, func() { rt.Run(context.Background(), rs, unless(20, failures["SQLError"])) })
			requireOutcomes(t, record.Effected, without(rs, 20)...)
			again := recs(newOwner(), 41)
			finishes(t, func() { rt.Run(context.Background(), again, Apply(effect)) })
			requireOutcomes(t, record.Effected, again...)
			answer, err := rt.Bury(t.Context(), rec(newOwner(), 50, ""), Grave{Reason: "permanent"})
			require.NoError(t, err)
			require.Equal(t, Buried, answer)
			b.requireLedger(41)
			in.Close()
			pool.Close()
		}
	})

	t.Run("ServerThatSpeaksAnotherLanguage", func(t *testing.T) {
		t.Parallel()
		dsn := altered(t, "lc_messages = 'C'")
		b := newBench(t, setup{dsn: dsn})
		rs := recs(newOwner(), 10)
		translated := func(code string) Apply {
			return func(context.Context, pgx.Tx, *record.Record) error {
				return &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: code, Message: "Übersetzt"}
			}
		}
		b.run(rs, unless(3, translated("23505")))
		requireClass(t, fault.ClassPermanent, rs[3])
		require.Equal(t, rolledBack, judgeCommit("", &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "23505"}))
		require.Equal(t, unknown, judgeCommit("", &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"}))
	})

	t.Run("ServerIsKilledUnderLoad", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a server of its own")
		}
		t.Parallel()
		server := pgtest.Server(t, embedded.Config{})
		admin := pgtest.Pool(t, server.DSN())
		require.NoError(t, migrations.Up(t.Context(), admin))
		require.NoError(t, schema(t.Context(), admin))
		b := newBench(t, setup{dsn: server.DSN()})
		rs := recs(newOwner(), 2000)
		once := false
		b.runUntilCharged(rs, unless(1000, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if !once {
				once = true
				require.NoError(t, server.Kill())
				require.NoError(t, server.Start(context.Background()))
			}
			return effect(ctx, tx, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(2000)
	})
}

// runUntilSettled is for records that do not fail by themselves.
func (b *workbench) runUntilSettled(rs []*record.Record, work Work) {
	b.t.Helper()
	for until := time.Now().Add(60 * time.Second); !rs[0].Settled(); {
		require.True(b.t, time.Now().Before(until), "%v", rs[0].Err)
		b.runWork(rs, work)
	}
}

// runUntilCharged is what the retry layer does with what costs nothing.
func (b *workbench) runUntilCharged(rs []*record.Record, work Work) {
	b.t.Helper()
	left := rs
	for until := time.Now().Add(60 * time.Second); len(left) > 0; {
		require.True(b.t, time.Now().Before(until), "%d records are not settled: %v", len(left), left[0].Err)
		b.runWork(left, work)
		left = slices.DeleteFunc(slices.Clone(left), func(r *record.Record) bool { return r.Settled() || charged(r) })
	}
}

func charged(r *record.Record) bool {
	return !errors.Is(r.Err, record.ErrNotRun) &&
		(&fault.Classifier{}).Classify(context.Background(), r.Err).Class.Charged()
}
