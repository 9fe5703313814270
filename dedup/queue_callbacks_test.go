package dedup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestQueue_Callbacks(t *testing.T) {
	t.Parallel()
	eachTrip(t, testQueueCallbacks)
}

func testQueueCallbacks(t *testing.T) {
	t.Parallel()

	t.Run("Read", func(t *testing.T) {
		t.Parallel()
		for _, mode := range execModes {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{dsn: withExecMode(t, mode)})
				var rows, row, affected []int
				rs := recs(newOwner(), 5)
				b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
					_ = queueEffect(ctx, pending, r)
					pending.Queue("select id from acc where id <= $1 order by id", r.Offset).Query(func(rs pgx.Rows) error {
						ids, err := pgx.CollectRows(rs, pgx.RowTo[int])
						rows = append(rows, len(ids))
						return err
					})
					pending.Queue("select $1::int + 1", r.Offset).QueryRow(func(r pgx.Row) error {
						var n int
						err := r.Scan(&n)
						row = append(row, n)
						return err
					})
					pending.Queue("update acc set balance = 1 where id <= $1", r.Offset).Exec(func(tag pgconn.CommandTag) error {
						affected = append(affected, int(tag.RowsAffected()))
						return nil
					})
					return nil
				}))
				requireOutcomes(t, record.Effected, rs...)
				require.Equal(t, []int{0, 1, 2, 3, 4}, rows)
				require.Equal(t, []int{1, 2, 3, 4, 5}, row)
				require.Equal(t, []int{0, 1, 2, 3, 4}, affected)
				b.requireLedger(5)
			})
		}
	})

	fails := map[string]func(r pgx.Row) error{
		"ReturnsAnError": func(pgx.Row) error { return errBoom },
		"Panics":         func(pgx.Row) error { panic(errBoom) },
		"FindsNoRow":     func(r pgx.Row) error { var n int; return r.Scan(&n) },
	}
	for name, f := range fails {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{route: RouteConfig{Writers: 1}})
			rs := recs(newOwner(), 20)
			b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
				_ = queueEffect(ctx, pending, r)
				q := pending.Queue("select 1 where $1::int <> 7", r.Offset)
				if r.Offset == 7 {
					q.QueryRow(f)
				}
				return nil
			}))
			require.True(t, charged(rs[7]), "%v", rs[7].Err)
			requireOutcomes(t, record.Effected, without(rs, 7)...)
			b.requireLedger(19)
		})
	}

	t.Run("SwallowsTheServersError", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), 20)
		b.runWork(rs, queueUnless(7, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
			pending.Queue("select 1/n from generate_series(2, 0, -1) n").QueryRow(func(r pgx.Row) error {
				var n int
				_ = r.Scan(&n)
				return nil
			})
			return nil
		}))
		require.Equal(t, "22012", serverError(rs[7].Err).Code)
		requireOutcomes(t, record.Effected, without(rs, 7)...)
	})

	t.Run("Skips", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), 20)
		b.runWork(rs, queueUnless(7, func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			_ = queueEffect(ctx, pending, r)
			pending.Queue("select 1").Exec(func(pgconn.CommandTag) error { return fault.Skip("not for us") })
			return nil
		}))
		requireOutcomes(t, record.Skipped, rs[7])
		requireOutcomes(t, record.Effected, without(rs, 7)...)
		b.beside(1)
		b.requireLedger(19)
	})

	t.Run("WhatAHandlerDoesWithItsBatchAfterItsReturnIsLost", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), 5)
		var kept *pgx.Batch
		b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
			if r.Offset == 1 {
				kept = pending
			}
			if r.Offset == 2 {
				kept.Queue("commit")
				kept.QueuedQueries[0].SQL = "commit"
			}
			return queueEffect(ctx, pending, r)
		}))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(5)
		require.Empty(t, b.reports)
	})

	t.Run("NilAmongWhatWasQueuedIsItsRecordsFailure", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 5)
		b.runWork(rs, queueUnless(3, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
			pending.QueuedQueries = append(pending.QueuedQueries, nil)
			return nil
		}))
		requireErr(t, errNoQuery, rs[3])
		requireOutcomes(t, record.Effected, without(rs, 3)...)
		b.requireLedger(4)
	})

	t.Run("QueuesTooLate", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{Writers: 1}})
		rs := recs(newOwner(), 2)
		b.runWork(rs, queueUnless(1, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
			pending.Queue("select 1").Exec(func(pgconn.CommandTag) error {
				pending.Queue("insert into eff (n) values (1)")
				return nil
			})
			return nil
		}))
		requireErr(t, errQueuedLate, rs[1])
		b.requireLedger(1)
	})

	t.Run("HangsAndIsStuckAlone", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{
			cfg: Config{HardGrace: 100 * time.Millisecond}, route: RouteConfig{AttemptTimeout: 500 * time.Millisecond},
		})
		release := make(chan struct{})
		defer close(release)
		rs := recs(newOwner(), 10)
		b.runWork(rs, queueUnless(3, func(_ context.Context, pending *pgx.Batch, _ *record.Record) error {
			pending.Queue("select 1").Exec(func(pgconn.CommandTag) error {
				<-release
				return nil
			})
			return nil
		}))
		requireErr(t, errDeadline, rs[3])
		requireOutcomes(t, record.Effected, without(rs, 3)...)
		b.requireLedger(9)
	})
}

func TestQueue_AfterAttemptTellsWhatItsStatementsCameTo(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{route: RouteConfig{Writers: 1}})
	told := map[int64][]error{}
	rs := recs(newOwner(), 5)
	b.runWork(rs, Queue(func(ctx context.Context, pending *pgx.Batch, r *record.Record) error {
		require.True(t, AfterAttempt(ctx, func(err error) { told[r.Offset] = append(told[r.Offset], err) }))
		_ = queueEffect(ctx, pending, r)
		if r.Offset == 3 {
			pending.Queue("select 1/0")
		}
		return nil
	}))
	require.Len(t, told, 5)
	for n, errs := range told {
		require.Len(t, errs, 1)
		if n != 3 {
			require.NoError(t, errs[0])
			continue
		}
		var pg *pgconn.PgError
		require.True(t, errors.As(errs[0], &pg) && strings.HasPrefix(pg.Code, "22"))
	}
}
