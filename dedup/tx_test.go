package dedup

import (
	"context"
	"errors"
	"fmt"
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

func TestHandlerTx(t *testing.T) {
	t.Parallel()
	eachStore(t, testHandlerTx)
}

func testHandlerTx(t *testing.T) {
	t.Parallel()

	refused := map[string]Apply{
		"Commit":   func(ctx context.Context, tx pgx.Tx, _ *record.Record) error { return tx.Commit(ctx) },
		"Rollback": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error { return tx.Rollback(ctx) },
		"Query": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Query(ctx, "commit") //nolint:sqlclosecheck // it is refused
			return err
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			return tx.QueryRow(ctx, "select 1; commit").Scan(new(int))
		},
		"Batch": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			b := &pgx.Batch{}
			b.Queue("select 1")
			b.Queue("commit")
			return tx.SendBatch(ctx, b).Close()
		},
		"Prepare": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Prepare(ctx, "p", "commit")
			return err
		},
		"InASavepoint": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = inner.Exec(ctx, "commit")
			return errors.Join(err, inner.Rollback(ctx))
		},
	}
	for _, sql := range []string{"commit", "select 1; commit", "commit; begin", "rollback", "end", "abort", "begin"} {
		refused["Exec "+sql] = func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	t.Run("CannotEndTheGroup", func(t *testing.T) {
		t.Parallel()
		for name, f := range refused {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{})
				rs := recs(newOwner(), 40)
				b.run(rs, unless(20, f))
				requireErr(t, ErrHandlerTx, rs[20])
				requireOutcomes(t, record.Effected, without(rs, 20)...)
				b.requireLedger(39)
			})
		}
	})

	t.Run("ErrorSaysWhatToDo", func(t *testing.T) {
		t.Parallel()
		var e *TxError
		require.ErrorAs(t, (&statements{}).check("  /* x */ COMMIT and chain"), &e)
		require.Equal(t, "commit is refused: it would end the transaction that this record shares with others", e.Error())
		require.Contains(t, e.Hint(), "return nil")
	})

	t.Run("SavepointsWork", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 20)
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			err := inSavepoint(ctx, tx, func(inner pgx.Tx) error {
				if err := effect(ctx, inner, r); err != nil {
					return err
				}
				_, err := inner.Exec(ctx, "select 1/0")
				return err
			})
			if err == nil {
				return errors.New("no error of the inner transaction")
			}
			return inSavepoint(ctx, tx, func(inner pgx.Tx) error { return effect(ctx, inner, r) })
		})
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(20)
	})

	t.Run("OpenResultsAreClosedAndHarmNobody", func(t *testing.T) {
		t.Parallel()
		open := map[string]Apply{
			"Rows": func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
				_, err := tx.Query(ctx, "insert into eff (n) values ($1) returning n", r.Offset) //nolint:sqlclosecheck // the case
				return err
			},
			"Row": func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
				tx.QueryRow(ctx, "insert into eff (n) values ($1) returning n", r.Offset)
				return nil
			},
			"Batch": func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
				b := &pgx.Batch{}
				b.Queue("insert into eff (n) values ($1)", r.Offset)
				tx.SendBatch(ctx, b)
				return nil
			},
		}
		for name, f := range open {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{})
				rs := recs(newOwner(), 40)
				b.run(rs, unless(20, f))
				requireOutcomes(t, record.Effected, rs...)
				b.requireLedger(40)
			})
		}
	})

	t.Run("OpenResultsOfAServerThatGoesSilentEndWithTheAttempt", func(t *testing.T) {
		t.Parallel()
		const many = "select generate_series(1, 1000000)"
		for name, ctxOf := range map[string]func(context.Context) context.Context{
			"TheAttemptsContext": func(ctx context.Context) context.Context { return ctx },
			"OneOfItsOwn":        context.WithoutCancel,
		} {
			for kind, work := range map[string]func(Apply) Work{
				"executed": func(f Apply) Work { return f },
				"grouped": func(f Apply) Work {
					return Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error { return f(ctx, tx, rs[0]) })
				},
			} {
				t.Run(name+" "+kind, func(t *testing.T) {
					t.Parallel()
					dsn := pgtest.DSN(t, migrations.Up, schema)
					proxy := pgtest.NewProxy(t, dsn)
					b := newBench(t, setup{
						dsn: proxy.DSN(), look: dsn, cfg: Config{HardGrace: 100 * time.Millisecond},
						route: RouteConfig{AttemptTimeout: time.Second, Writers: 1},
					})
					t.Cleanup(proxy.CutAll)
					rs, silent := recs(newOwner(), 1), true
					b.runWork(rs, work(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
						if !silent {
							return effect(ctx, tx, r)
						}
						silent = false
						rows, err := tx.Query(ctxOf(ctx), many)
						if err == nil && rows.Next() {
							proxy.Pause()
						}
						return err
					}))
					require.False(t, rs[0].Settled())
					proxy.Resume()
					b.runUntilSettled(rs, work(effect))
					b.requireLedger(1)
				})
			}
		}
	})

	t.Run("CopyThatAGoroutineLeftHangingIsAStuckHandler", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{
			cfg: Config{HardGrace: 100 * time.Millisecond}, route: RouteConfig{AttemptTimeout: 500 * time.Millisecond},
		})
		release, copying := make(chan struct{}), make(chan struct{})
		defer close(release)
		rs := recs(newOwner(), 5)
		b.run(rs, unless(3, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			go func() {
				_, _ = tx.CopyFrom(context.WithoutCancel(ctx), pgx.Identifier{"eff"}, []string{"n"}, pgx.CopyFromFunc(func() ([]any, error) {
					close(copying)
					<-release
					return nil, nil
				}))
			}()
			<-copying
			return nil
		}))
		requireErr(t, errDeadline, rs[3])
		requireOutcomes(t, record.Effected, without(rs, 3)...)
		b.requireLedger(4)
	})

	t.Run("EveryMethodWritesInTheTransaction", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 1)
		b.run(rs, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{"eff"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}})); err != nil {
				return err
			}
			if _, err := tx.Prepare(ctx, "put", "insert into uniq values ($1) returning n"); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRow(ctx, "put", 3).Scan(&n); err != nil || n != 3 {
				return fmt.Errorf("%d: %w", n, err)
			}
			objects := tx.LargeObjects()
			if _, err := objects.Create(ctx, 0); err != nil {
				return err
			}
			return errors.Join(errBoom, tx.QueryRow(ctx, "select 1 where false").Scan(&n))
		})
		require.ErrorIs(t, rs[0].Err, pgx.ErrNoRows)
		require.ErrorIs(t, rs[0].Err, errBoom)
		require.Zero(t, query[int](b, "select (select count(*) from eff) + (select count(*) from uniq)"))
	})

	t.Run("TransactionKeptByAGoroutineIsClosed", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 40)
		kept, used := make(chan pgx.Tx, 1), make(chan error, 1)
		go func() {
			tx := <-kept
			for { // until the handler that gave it has returned
				if _, err := tx.Exec(context.Background(), "insert into eff (n) values (-1)"); errors.Is(err, pgx.ErrTxClosed) {
					used <- err
					return
				}
			}
		}()
		b.run(rs, unless(20, func(_ context.Context, tx pgx.Tx, _ *record.Record) error {
			kept <- tx
			return errBoom
		}))
		require.ErrorIs(t, <-used, pgx.ErrTxClosed)
		requireErr(t, errBoom, rs[20])
		requireOutcomes(t, record.Effected, without(rs, 20)...)
		b.requireLedger(39)
	})

	t.Run("ConnectionThatEndsTheTransactionStopsTheRouteWithNoRowWithoutEffect", func(t *testing.T) {
		t.Parallel()
		for _, sql := range []string{"commit", "commit; begin", "commit; begin; savepoint other", "rollback", "rollback; begin"} {
			t.Run(sql, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{route: RouteConfig{Writers: 1}})
				rs := recs(newOwner(), 40)
				b.run(rs, unless(20, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
					_, err := tx.Conn().Exec(ctx, sql)
					return err
				}))
				requireErr(t, ErrRouteStopped, rs[20:]...)
				require.Equal(t, fault.ClassUnavailable,
					(&fault.Classifier{}).Classify(context.Background(), rs[20].Err).Class)
				more := recs(newOwner(), 1)
				b.run(more, effect)
				requireErr(t, ErrRouteStopped, more...)
				b.requireLedger(query[int](b, "select count(*) from eff"))
				require.Equal(t, "transaction_ended", b.reports[0].Kind)
				require.Equal(t, int64(20), b.reports[0].Offset)
			})
		}
	})

	t.Run("ConnectionThatEndsTheTransactionBeforeItFailsStopsTheRouteWithNoRowWithoutEffect", func(t *testing.T) {
		t.Parallel()
		for _, sql := range []string{"commit", "commit; begin", "commit and chain", "rollback; begin"} {
			for name, fail := range failedAfterEnd {
				t.Run(name+" after "+sql, func(t *testing.T) {
					t.Parallel()
					b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
					ctx, cancel := context.WithCancelCause(context.Background())
					defer cancel(nil)
					rs := recs(newOwner(), 40)
					finishes(t, func() {
						b.rt.Run(ctx, rs, unless(20, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
							if _, err := tx.Conn().Exec(ctx, sql); err != nil {
								return err
							}
							return fail(ctx, tx, cancel)
						}))
					})
					b.requireStopped(rs)
				})
			}
		}
	})

	t.Run("ConnectionOfRowsThatEndsTheTransactionStopsTheRouteAndSettlesNobody", func(t *testing.T) {
		t.Parallel()
		for name, fail := range failedAfterEnd {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}})
				rs := recs(newOwner(), 40)
				b.run(rs, unless(20, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
					rows, err := tx.Query(ctx, "select 1")
					if err != nil {
						return err
					}
					rows.Close()
					if _, err := rows.Conn().Exec(ctx, "commit; begin"); err != nil {
						return err
					}
					return fail(ctx, tx, func(error) {})
				}))
				requireErr(t, ErrRouteStopped, rs...)
				require.LessOrEqual(t, query[int](b, "select count(*) from headrace.inbox"), query[int](b, "select count(*) from eff"),
					"rows and effects")
			})
		}
	})

	t.Run("ConnectionThatKeepsTheTransactionIsFine", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 40)
		b.run(rs, unless(20, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			_, err := tx.Conn().Exec(ctx, "insert into eff (n) values ($1)", r.Offset)
			return err
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(40)
	})

	t.Run("SoloRouteMaySetWhatIsLocal", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Solo: true}})
		rs := recs(newOwner(), 5)
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if _, err := tx.Exec(ctx, "set local work_mem = '8MB'"); err != nil {
				return err
			}
			return effect(ctx, tx, r)
		})
		requireOutcomes(t, record.Effected, rs...)
		require.Equal(t, 5, b.counted(b.groups, "committed"))
	})

	runByID(t, "IsolationIsTheRoutesWhateverTheDatabaseSays", "it runs read committed only", func(t *testing.T) {
		t.Parallel()
		for want, level := range map[string]pgx.TxIsoLevel{
			"read committed": "", "repeatable read": pgx.RepeatableRead, "serializable": pgx.Serializable,
		} {
			dsn := altered(t, "default_transaction_isolation = 'repeatable read'")
			b := newBench(t, setup{dsn: dsn, route: RouteConfig{Isolation: level}})
			rs := recs(newOwner(), 3)
			b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
				var have string
				if err := tx.QueryRow(ctx, "show transaction_isolation").Scan(&have); err != nil {
					return err
				}
				require.Equal(t, want, have)
				return effect(ctx, tx, r)
			})
			b.run(recs(newOwner(), 3), effect)
			b.requireLedger(3)
		}
	})
}

// failedAfterEnd are what may come after a handler has ended the transaction, but for nil. cancel ends its delivery.
var failedAfterEnd = map[string]func(ctx context.Context, tx pgx.Tx, cancel context.CancelCauseFunc) error{
	"Error":     func(context.Context, pgx.Tx, context.CancelCauseFunc) error { return errBoom },
	"Permanent": func(context.Context, pgx.Tx, context.CancelCauseFunc) error { return fault.Permanent(errBoom) },
	"Panic":     func(context.Context, pgx.Tx, context.CancelCauseFunc) error { panic(errBoom) },
	"Skip":      func(context.Context, pgx.Tx, context.CancelCauseFunc) error { return fault.Skip("not for us") },
	"Conflict": func(context.Context, pgx.Tx, context.CancelCauseFunc) error {
		return &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: codeDeadlock}
	},
	"SQLError": func(ctx context.Context, tx pgx.Tx, _ context.CancelCauseFunc) error {
		_, err := tx.Exec(ctx, "select 1/0")
		return err
	},
	"EndOfDelivery": func(_ context.Context, _ pgx.Tx, cancel context.CancelCauseFunc) error {
		cancel(record.ErrRevoked)
		return nil
	},
}

// requireStopped says that the route is stopped, that nothing of rs was settled or charged by a transaction that a handler
// has ended, and that what is durable of it has its rows and nothing else has.
func (b *workbench) requireStopped(rs []*record.Record) {
	b.t.Helper()
	for _, r := range rs {
		require.False(b.t, r.Settled(), "offset %d", r.Offset)
		require.True(b.t, errors.Is(r.Err, ErrRouteStopped) || errors.Is(r.Err, record.ErrRevoked), "offset %d: %v", r.Offset, r.Err)
	}
	more := rec(newOwner(), 1000, "")
	b.run([]*record.Record{more}, effect)
	requireErr(b.t, ErrRouteStopped, more)
	b.requireLedger(query[int](b, "select count(*) from eff"))
	require.NotEmpty(b.t, b.reports)
	require.Equal(b.t, "transaction_ended", b.reports[0].Kind)
}

// inSavepoint is what a handler does that wants to survive an error of its own.
func inSavepoint(ctx context.Context, tx pgx.Tx, f func(pgx.Tx) error) error {
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = inner.Rollback(ctx) }()
	if err := f(inner); err != nil {
		return err
	}
	return inner.Commit(ctx)
}
