package dedup

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// sayings are numbers to be written right before COMMIT.
type sayings []int64

const sayingsSQL = "insert into said (n) select u.n from unnest($1::bigint[]) with ordinality u(n, i) order by u.i"

func (s sayings) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return sayingsSQL, []any{[]int64(s)}, nil
}

func (s sayings) QueueAll(b *pgx.Batch, all []Deferred) {
	var together []int64
	for _, d := range all {
		together = append(together, d.(sayings)...)
	}
	b.Queue(sayingsSQL, together)
}

// newSaying is a workbench with a table of what was said, and one that counts the statements which said it.
func newSaying(t *testing.T, s setup) *workbench {
	t.Helper()
	b := newBench(t, s)
	b.exec(`create table said (id bigserial, n bigint check (n >= 0));
		create table statements (n int); insert into statements values (0);
		create function count_them() returns trigger language plpgsql as $$ begin update statements set n = n + 1; return null; end $$;
		create trigger count_them after insert on said for each statement execute function count_them()`)
	return b
}

func (b *workbench) requireSayings(want ...int64) {
	b.t.Helper()
	rows, err := b.pool.Query(context.Background(), "select n from said order by id")
	require.NoError(b.t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(b.t, err)
	require.Equal(b.t, want, got)
}

// say is effect, with a saying.
func say(ctx context.Context, tx pgx.Tx, r *record.Record) error {
	if err := effect(ctx, tx, r); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, sayingsSQL, sayings{r.Offset})
	return err
}

// speakers are the ways to say something.
func speakers(special int64, f func(*record.Record) error) map[string]Work {
	one := func(r *record.Record) error {
		if r.Offset == special {
			return f(r)
		}
		return nil
	}
	return map[string]Work{
		"executed": Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if err := say(ctx, tx, r); err != nil {
				return err
			}
			return one(r)
		}),
		"queued": Queue(func(ctx context.Context, b *pgx.Batch, r *record.Record) error {
			b.Queue(sayingsSQL, sayings{r.Offset})
			_ = queueEffect(ctx, b, r)
			return one(r)
		}),
		"grouped": Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			failed := fault.Members{}
			for i, r := range rs {
				if err := one(r); err != nil {
					failed[i] = err
				}
				if _, err := tx.Exec(ctx, sayingsSQL, sayings{r.Offset}); err != nil {
					return err
				}
			}
			if len(failed) > 0 {
				return failed
			}
			return batchEffect(ctx, tx, rs)
		}),
	}
}

func upTo(n int64, but ...int64) (list []int64) {
next:
	for i := range n {
		for _, x := range but {
			if i == x {
				continue next
			}
		}
		list = append(list, i)
	}
	return list
}

func TestDeferred(t *testing.T) {
	t.Parallel()
	eachStore(t, testDeferred)
}

func testDeferred(t *testing.T) {
	t.Parallel()
	each := func(name string, special int64, f func(*record.Record) error, test func(t *testing.T, b *workbench, work Work)) {
		for kind, work := range speakers(special, f) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				test(t, newSaying(t, setup{}), work)
			})
		}
	}

	each("OneStatementAGroupAndNoneForWhatIsKnown", -1, nil, func(t *testing.T, b *workbench, work Work) {
		o := newOwner()
		rs := recs(o, 50)
		b.runWork(rs, work)
		requireOutcomes(t, record.Effected, rs...)
		b.runWork(recs(newOwner(), 50), work)
		b.requireSayings(upTo(50)...)
		require.Equal(t, b.counted(b.groups, "committed"), query[int](b, "select n from statements"))
		b.requireLedger(50)
	})

	each("WhatBecomesOfItsRecordBecomesOfIt", 20, func(*record.Record) error { return fault.Permanent(errBoom) },
		func(t *testing.T, b *workbench, work Work) {
			rs := recs(newOwner(), 40)
			b.runWork(rs, work)
			requireErr(t, errBoom, rs[20])
			b.requireSayings(upTo(40, 20)...)
			b.requireLedger(39)
		})

	each("ASkippedRecordSaysNothing", 20, func(*record.Record) error { return fault.Skip("not for us") },
		func(t *testing.T, b *workbench, work Work) {
			rs := recs(newOwner(), 40)
			b.runWork(rs, work)
			requireOutcomes(t, record.Skipped, rs[20])
			b.requireSayings(upTo(40, 20)...)
		})

	t.Run("ItsErrorIsItsOwnRecordsAlone", func(t *testing.T) {
		t.Parallel()
		b := newSaying(t, setup{})
		rs := recs(newOwner(), 10)
		b.run(rs, unless(4, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Exec(ctx, sayingsSQL, sayings{-1})
			return err
		}))
		requireOutcomes(t, record.Effected, without(rs, 4)...)
		require.ErrorContains(t, rs[4].Err, "said_n_check")
		require.False(t, rs[4].Settled())
		b.requireLedger(9)
	})

	t.Run("AnUndoneRecordRunsAndSaysAgainOnce", func(t *testing.T) {
		t.Parallel()
		b := newSaying(t, setup{})
		rs := recs(newOwner(), 30)
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if err := say(ctx, tx, r); err != nil || r.Offset%7 != 3 {
				return err
			}
			_, err := tx.Exec(ctx, "select 1/0")
			return err
		})
		b.requireSayings(upTo(30, 3, 10, 17, 24)...)
	})

	t.Run("ARollbackToASavepointTakesItBack", func(t *testing.T) {
		t.Parallel()
		b := newSaying(t, setup{})
		b.run(recs(newOwner(), 1), func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			speak := func(tx pgx.Tx, n int64) {
				_, err := tx.Exec(ctx, sayingsSQL, sayings{n})
				require.NoError(t, err)
			}
			speak(tx, 1)
			kept, err := tx.Begin(ctx)
			require.NoError(t, err)
			speak(kept, 2)
			undone, err := kept.Begin(ctx)
			require.NoError(t, err)
			speak(undone, 3)
			require.NoError(t, undone.Rollback(ctx))
			speak(kept, 4)
			require.NoError(t, kept.Commit(ctx))
			speak(tx, 5)
			return nil
		})
		b.requireSayings(1, 2, 4, 5)
	})

	t.Run("WhatTheInboxCannotKeepInStepIsRefused", func(t *testing.T) {
		t.Parallel()
		b := newSaying(t, setup{})
		rs := recs(newOwner(), 2)
		b.run(rs[:1], func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			_, err := tx.Exec(ctx, "SavePoint mine")
			require.NoError(t, err)
			_, err = tx.Exec(ctx, sayingsSQL, sayings{1})
			return err
		})
		require.ErrorIs(t, rs[0].Err, errDeferredSavepoint)
		b.run(rs[1:], func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
			batch := &pgx.Batch{}
			batch.Queue(sayingsSQL, sayings{1})
			return tx.SendBatch(ctx, batch).Close()
		})
		require.ErrorIs(t, rs[1].Err, errDeferredBatch)
		require.Zero(t, query[int](b, "select count(*) from said"))
	})

	t.Run("AHandlersOwnCommitDoesNotLoseWhatOthersSaid", func(t *testing.T) {
		t.Parallel()
		b := newSaying(t, setup{})
		rs := recs(newOwner(), 5)
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if err := say(ctx, tx, r); err != nil || r.Offset < 3 {
				return err
			}
			_, err := tx.Conn().Exec(ctx, "commit")
			return err
		})
		require.ErrorIs(t, b.rt.stopped, ErrRouteStopped)
		b.requireSayings(0, 1, 2)
	})
}
