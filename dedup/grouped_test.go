package dedup

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// batchUnless is batchEffect, but f for a group with n in it.
func batchUnless(n int64, f Batch) Batch {
	return func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
		if err := batchEffect(ctx, tx, rs); err != nil {
			return err
		}
		if slices.ContainsFunc(rs, func(r *record.Record) bool { return r.Offset == n }) {
			return f(ctx, tx, rs)
		}
		return nil
	}
}

// batchFailures are the ways in which a call for a group fails and nobody says for whose sake.
var batchFailures = map[string]Batch{
	"Error": func(context.Context, pgx.Tx, []*record.Record) error { return errBoom },
	"Panic": func(context.Context, pgx.Tx, []*record.Record) error { panic("boom") },
	"SQLError": func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
		_, err := tx.Exec(ctx, "select 1/0")
		return err
	},
	"SwallowedSQLError": func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
		_, _ = tx.Exec(ctx, "select 1/0")
		return nil
	},
	"SavepointLeftOpen": func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
		_, err := tx.Begin(ctx)
		return err
	},
	"Commit": func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error { return tx.Commit(ctx) },
	"UnencodableBatch": func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
		b := &pgx.Batch{}
		b.Queue("select 1")
		b.Queue("insert into eff (n) values ($1)", make(chan int))
		return tx.SendBatch(ctx, b).Close()
	},
	"MemberOutOfRange": func(_ context.Context, _ pgx.Tx, rs []*record.Record) error {
		return fault.Members{len(rs): errBoom}
	},
}

func TestBatch_OneThatFailsIsFound(t *testing.T) {
	t.Parallel()
	eachStore(t, testBatchOneThatFailsIsFound)
}

func testBatchOneThatFailsIsFound(t *testing.T) {
	t.Parallel()
	for name, f := range batchFailures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size = 100
			b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
			b.groupsOf(size)
			for _, at := range []int{0, 50, 99} {
				b.exec("truncate eff, headrace.inbox, headrace.offsets")
				clear(b.attempts)
				rs := recs(newOwner(), size)
				b.runWork(rs, batchUnless(int64(at), f))
				require.True(t, charged(rs[at]), "%v", rs[at].Err)
				requireOutcomes(t, record.Effected, without(rs, at)...)
				b.requireLedger(size - 1)
				require.Equal(t, size-1, b.counted(b.attempts, ""))
				require.Equal(t, 1, b.counted(b.attempts, "permanent"))
			}
		})
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()
	eachStore(t, testBatch)
}

func testBatch(t *testing.T) {
	t.Parallel()

	t.Run("OneCallForAGroup", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		var sizes []int
		rs := recs(newOwner(), 50)
		b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			sizes = append(sizes, len(rs))
			require.Same(t, tx, Tx(ctx))
			require.Equal(t, 1, rs[0].Attempt())
			_, running := rs[len(rs)-1].RunningSince()
			require.True(t, running)
			return batchEffect(ctx, tx, rs)
		}))
		requireOutcomes(t, record.Effected, rs...)
		require.Equal(t, []int{50}, sizes)
		b.requireLedger(50)
	})

	t.Run("HalvingFinds", func(t *testing.T) {
		t.Parallel()
		const size = 500
		for name, bad := range map[string]func(n int64) bool{
			"One": func(n int64) bool { return n == 250 }, "Three": func(n int64) bool { return n%200 == 17 }, "All": func(int64) bool { return true },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
				b.groupsOf(size)
				calls, failed := 0, 0
				rs := recs(newOwner(), size)
				b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
					calls++
					if err := batchEffect(ctx, tx, rs); err != nil {
						return err
					}
					if slices.ContainsFunc(rs, func(r *record.Record) bool { return bad(r.Offset) }) {
						return errBoom
					}
					return nil
				}))
				for _, r := range rs {
					if bad(r.Offset) {
						failed++
						requireErr(t, errBoom, r)
						continue
					}
					requireOutcomes(t, record.Effected, r)
				}
				b.requireLedger(size - failed)
				require.Equal(t, 1, b.groups["committed"]+b.groups["rolled_back"]+btoi(failed == size))
				require.LessOrEqual(t, calls, min(2*size-1, 1+failed*2*9))
			})
		}
	})

	t.Run("LongHalvingIsCutAndGoesOnInTheNextGroup", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Millisecond}, route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), firstLimit)
		b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			if _, err := tx.Exec(ctx, "select pg_sleep(0.002)"); err != nil {
				return err
			}
			return batchUnless(40, batchFailures["SQLError"])(ctx, tx, rs)
		}))
		require.True(t, charged(rs[40]))
		requireOutcomes(t, record.Effected, without(rs, 40)...)
		b.requireLedger(firstLimit - 1)
	})

	t.Run("FollowersOfAFailedKeyAreNotRun", func(t *testing.T) {
		t.Parallel()
		for name, f := range map[string]Batch{
			"Found": batchFailures["Error"],
			"Named": func(_ context.Context, _ pgx.Tx, rs []*record.Record) error {
				return fault.Members{slices.IndexFunc(rs, func(r *record.Record) bool { return r.Offset == 3 }): fault.Transient(errBoom)}
			},
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
				b.runWork(rs, batchUnless(3, f))
				requireErr(t, errBoom, rs[3])
				requireErr(t, record.ErrNotRun, rs[7], rs[9])
				b.requireLedger(17)
				b.runWork([]*record.Record{rs[3], rs[7], rs[9]}, Batch(batchEffect))
				b.requireLedger(20)
			})
		}
	})

	t.Run("MembersAreJudgedEachForItself", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 20)
		calls := 0
		b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			calls++
			if err := batchEffect(ctx, tx, rs); err != nil {
				return err
			}
			named := fault.Members{0: nil}
			for i, r := range rs {
				switch r.Offset {
				case 2:
					named[i] = fault.Transient(errBoom)
				case 5:
					named[i] = errBoom
				case 7:
					named[i] = fault.Skip("not for us")
				}
			}
			return named
		}))
		require.Equal(t, 2, calls)
		requireClass(t, fault.ClassTransient, rs[2])
		requireClass(t, fault.ClassPermanent, rs[5])
		requireOutcomes(t, record.Skipped, rs[7])
		b.beside(1)
		b.requireLedger(17)
		require.Equal(t, map[string]int{"": 18, "transient": 1, "permanent": 1}, b.attempts)
	})

	t.Run("MembersOfNobodyIsSuccess", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 3)
		b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			if err := batchEffect(ctx, tx, rs); err != nil {
				return err
			}
			return fault.Members{1: nil}
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(3)
	})

	t.Run("MemberThatIsNotThereIsNamedInTheError", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 1)
		b.runWork(rs, batchUnless(0, batchFailures["MemberOutOfRange"]))
		requireErr(t, errIndex, rs[0])
		require.ErrorContains(t, rs[0].Err, "1 of 1")
		requireClass(t, fault.ClassPermanent, rs[0])
	})

	t.Run("SkipSkipsAll", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 5)
		b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			return errors.Join(batchEffect(ctx, tx, rs), fault.Skip("not for us"))
		}))
		requireOutcomes(t, record.Skipped, rs...)
		b.beside(5)
		b.requireLedger(0)
	})

	t.Run("UnavailableIsEverybodysAndHalvesNothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 20)
		calls := 0
		b.runWork(rs, Batch(func(context.Context, pgx.Tx, []*record.Record) error {
			calls++
			return fault.Unavailable(errBoom, "payments")
		}))
		requireClass(t, fault.ClassUnavailable, rs...)
		require.Equal(t, 1, calls)
		b.requireLedger(0)
	})

	runByID(t, "DuplicatesInAGroupAndAcrossGroups", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := append(recs(newOwner(), 10), recAs(newOwner(), 10, "", "id-3", "value-3"))
		b.runWork(rs, Batch(batchEffect))
		requireOutcomes(t, record.Effected, rs[:10]...)
		requireOutcomes(t, record.Duplicate, rs[10])
		more := recs(newOwner(), 10)
		b.runWork(more, Batch(batchEffect))
		requireOutcomes(t, record.Effected, more...)
		b.requireLedger(10)
	})

	t.Run("DeferredConstraintIsItsRecordsFailure", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		b.exec("insert into late values (7)")
		rs := recs(newOwner(), 20)
		b.runWork(rs, batchUnless(7, func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
			_, err := tx.Exec(ctx, "insert into late values (7)")
			return err
		}))
		require.True(t, charged(rs[7]))
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		b.requireLedger(19)
	})

	t.Run("SlowRecordIsFoundAndNobodyElseIsCharged", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1, AttemptTimeout: 300 * time.Millisecond}})
		rs := recs(newOwner(), 20)
		b.runWork(rs, batchUnless(7, func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
			_, err := tx.Exec(ctx, "select pg_sleep(20)")
			return err
		}))
		requireClass(t, fault.ClassTransient, rs[7])
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		b.requireLedger(19)
		require.Equal(t, 1, b.counted(b.attempts, "transient"))
	})

	t.Run("GroupThatIsTooSlowShrinks", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{MaxBatchTime: 20 * time.Millisecond}, route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), 300)
		b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			if _, err := tx.Exec(ctx, "select pg_sleep($1)", float64(len(rs))/1000); err != nil {
				return err
			}
			return batchEffect(ctx, tx, rs)
		}))
		requireOutcomes(t, record.Effected, rs...)
		require.Less(t, b.groupsOf(1), 25)
		b.requireLedger(300)
	})

	t.Run("LockConflictIsNobodysFailure", func(t *testing.T) {
		t.Parallel()
		for name, f := range map[string]func(error) error{
			"Returned": func(err error) error { return err },
			"Named":    func(err error) error { return fault.Members{0: err} },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{route: RouteConfig{Writers: 1}})
				tx, err := b.pool.Begin(context.Background())
				require.NoError(t, err)
				_, err = tx.Exec(context.Background(), "update acc set balance = 1 where id = 5")
				require.NoError(t, err)
				b.when("wait_event_type = 'Lock'", func() { require.NoError(t, tx.Rollback(context.Background())) })
				rs := recs(newOwner(), 10)
				b.runWork(rs, batchUnless(4, func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
					if _, err := tx.Exec(ctx, "update acc set balance = 2 where id = 5"); err != nil {
						return f(err)
					}
					return nil
				}))
				requireOutcomes(t, record.Effected, rs...)
				b.requireLedger(10)
			})
		}
	})

	t.Run("BackendThatDiesIsNobodysFailure", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), 20)
		once := true
		b.runWork(rs, batchUnless(7, func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
			if !once {
				return nil
			}
			once = false
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(20)
	})

	t.Run("HardEndGivesAllBack", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		ctx, cancel := context.WithCancelCause(context.Background())
		b.when("state = 'active' and query like '%pg_sleep(22)%' and query !~ 'activity'", func() { cancel(record.ErrRevoked) })
		rs := recs(newOwner(), 10)
		finishes(t, func() {
			b.rt.Run(ctx, rs, Batch(func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
				_, err := tx.Exec(ctx, "select pg_sleep(22)")
				return err
			}))
		})
		requireErr(t, record.ErrRevoked, rs...)
		b.requireLedger(0)
	})

	// Nobody knows whose fault it is: each runs alone, and the one that hangs alone is charged.
	t.Run("HandlerThatIgnoresItsDeadlineIsStuck", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{
			cfg: Config{HardGrace: 100 * time.Millisecond}, route: RouteConfig{AttemptTimeout: 500 * time.Millisecond},
		})
		release := make(chan struct{})
		defer close(release)
		rs := recs(newOwner(), 10)
		b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			if slices.ContainsFunc(rs, func(r *record.Record) bool { return r.Offset == 3 }) {
				<-release
				return nil
			}
			return batchEffect(ctx, tx, rs)
		}))
		requireErr(t, errDeadline, rs[3])
		requireOutcomes(t, record.Effected, without(rs, 3)...)
		b.requireLedger(9)
		require.Equal(t, 1, b.counted(b.attempts, "transient"))
		require.Equal(t, int64(0), b.reports[0].Offset)
		stuck, ok := b.in.Stuck()
		require.True(t, ok)
		require.Equal(t, "post", stuck.Route)
	})

	t.Run("HandlerThatEndsItsGoroutineFailsAlone", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 10)
		b.runWork(rs, batchUnless(3, func(context.Context, pgx.Tx, []*record.Record) error {
			runtime.Goexit()
			return nil
		}))
		requireErr(t, errGoexit, rs[3])
		requireOutcomes(t, record.Effected, without(rs, 3)...)
		b.requireLedger(9)
	})

	t.Run("ConnectionThatEndsTheTransactionStopsTheRouteWithNoRowWithoutEffect", func(t *testing.T) {
		t.Parallel()
		for _, sql := range []string{"commit", "commit; begin", "rollback; begin"} {
			t.Run(sql, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{route: RouteConfig{Writers: 1}})
				rs := recs(newOwner(), 10)
				b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
					_, err := tx.Conn().Exec(ctx, sql)
					return err
				}))
				requireErr(t, ErrRouteStopped, rs...)
				b.requireLedger(0)
				require.Zero(t, query[int](b, "select count(*) from headrace.inbox"))
			})
		}
	})

	t.Run("ConnectionThatEndsTheTransactionBeforeItFailsStopsTheRouteWithNoRowWithoutEffect", func(t *testing.T) {
		t.Parallel()
		for _, sql := range []string{"commit", "commit; begin", "commit and chain"} {
			for name, fail := range failedAfterEnd {
				t.Run(name+" after "+sql, func(t *testing.T) {
					t.Parallel()
					b := newBench(t, setup{route: RouteConfig{Writers: 1}})
					ctx, cancel := context.WithCancelCause(context.Background())
					defer cancel(nil)
					rs := recs(newOwner(), 10)
					finishes(t, func() {
						b.rt.Run(ctx, rs, Batch(func(ctx context.Context, tx pgx.Tx, _ []*record.Record) error {
							if _, err := tx.Conn().Exec(ctx, sql); err != nil {
								return err
							}
							return fail(ctx, tx, cancel)
						}))
					})
					b.requireStopped(rs)
					require.Zero(t, query[int](b, "select count(*) from headrace.inbox"))
				})
			}
		}
	})

	t.Run("EveryTripIsCutOnce", func(t *testing.T) {
		t.Parallel()
		const size = 8
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
		work := batchUnless(4, batchFailures["SQLError"])
		b.runWork(recs(newOwner(), size), work) // its connection has prepared all there is
		b.exec("truncate eff, headrace.inbox, headrace.offsets")
		before := proxy.Requests()
		b.runWork(recs(newOwner(), size), work)
		trips := proxy.Requests() - before
		for i := range trips {
			for _, cut := range []pgtest.Action{pgtest.CutReply, pgtest.CutBefore} {
				b.exec("truncate eff, headrace.inbox, headrace.offsets")
				rs := recs(newOwner(), size)
				met := proxy.Once(pgtest.At(proxy.Requests()+i), cut)
				b.runUntilCharged(rs, work)
				await(t, met)
				requireOutcomes(t, record.Effected, without(rs, 4)...)
				require.True(t, charged(rs[4]))
				b.requireLedger(size - 1)
			}
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
