package dedup

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// quiet is a route whose own sweeper has no turn, so that a test has them all.
func quiet(retention time.Duration, horizon func(context.Context) (time.Time, error)) *sweeper {
	return &sweeper{rt: &Route{cfg: RouteConfig{Name: "post", Retention: retention, Horizon: horizon}}}
}

func (b *workbench) sweeper(retention time.Duration, horizon func(context.Context) (time.Time, error)) *sweeper {
	s := quiet(retention, horizon)
	s.rt.in, s.rt.consumer = b.in, b.rt.consumer
	return s
}

// pass sweeps until there is no more.
func (s *sweeper) pass(t *testing.T) {
	t.Helper()
	for more := true; more; {
		var err error
		more, err = s.step(context.Background())
		require.NoError(t, err)
	}
}

func caughtUp(context.Context) (time.Time, error) { return time.Time{}, nil }

func TestSweep(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	age := func(b *workbench, rows int, how string) {
		b.exec(`insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates, created_at)
			select $1, gen_random_uuid(), 0, n, now() - $3::interval from generate_series(1, $2) n`, b.rt.consumer, rows, how)
	}
	left := func(b *workbench) int { return query[int](b, "select count(*) from headrace.inbox") }

	t.Run("DeletesWhatIsOlderThanTheRetentionAndNothingElse", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		age(b, 30_000, "8 days")
		age(b, 10, "6 days")
		b.exec("insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates, created_at) values (999, gen_random_uuid(), 0, 0, '2001-01-01')")
		b.sweeper(7*day, caughtUp).pass(t)
		require.Equal(t, 11, left(b))
	})

	t.Run("LongDowntimeDoesNotDeleteWhatWillBeRedelivered", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		age(b, 5, "30 days") // effected, but their offsets were not committed when the consumer went down
		age(b, 5, "40 days")
		uncommitted := time.Now().Add(-35 * day)
		b.sweeper(7*day, func(context.Context) (time.Time, error) { return uncommitted, nil }).pass(t)
		require.Equal(t, 5, left(b))
		b.exec("update headrace.consumers set swept_at = null")
		b.sweeper(7*day, caughtUp).pass(t)
		require.Zero(t, left(b))
	})

	t.Run("NothingIsDeletedWhenNobodyKnowsWhatMayComeAgain", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		age(b, 5, "30 days")
		_, err := b.sweeper(7*day, func(context.Context) (time.Time, error) { return time.Time{}, errors.New("broker away") }).
			step(context.Background())
		require.ErrorContains(t, err, "broker away")
		require.Equal(t, 5, left(b))
	})

	t.Run("OnePassAnInterval", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		s := b.sweeper(7*day, caughtUp)
		s.pass(t)
		age(b, 5, "30 days")
		s.pass(t)
		require.Equal(t, 5, left(b), "not due")
		b.exec("update headrace.consumers set swept_at = now() - interval '2 hours'")
		s.pass(t)
		require.Zero(t, left(b))
	})

	t.Run("TenSweepersUnderLoadMakeOnePassAndNoDeadlock", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		b := newBench(t, setup{dsn: dsn})
		age(b, 20_000, "8 days")
		ctx, cancel := context.WithCancel(context.Background())
		var sweepers, load sync.WaitGroup
		for range 10 {
			s := b.sweeper(7*day, caughtUp)
			sweepers.Go(func() {
				for ctx.Err() == nil {
					if _, err := s.step(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for w := range 3 {
			o := newOwner()
			rs := make([]*record.Record, 600)
			for i := range rs {
				rs[i] = rec(o, w*1000+i, "")
			}
			load.Go(func() {
				for i := 0; i < len(rs); i += 100 {
					b.run(rs[i:i+100], effect)
				}
				requireOutcomes(t, record.Effected, rs...)
			})
		}
		load.Wait()
		require.Eventually(t, func() bool {
			return query[int](b, "select count(*) from headrace.inbox where created_at < now() - interval '7 days'") == 0
		}, 30*time.Second, 10*time.Millisecond)
		cancel()
		sweepers.Wait()
		b.requireLedger(1800)
		require.Zero(t, query[int64](b, "select deadlocks from pg_stat_database where datname = current_database()"))
	})

	t.Run("RowThatIsLockedIsJumpedOver", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		age(b, 5, "30 days")
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "select from headrace.inbox limit 1 for update")
		require.NoError(t, err)
		b.sweeper(7*day, caughtUp).pass(t)
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, 1, left(b))
	})

	t.Run("RouteSweepsByItself", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{
			cfg:   Config{SweepInterval: 20 * time.Millisecond},
			route: RouteConfig{Retention: 7 * day, Horizon: caughtUp},
		})
		age(b, 500, "30 days")
		require.Eventually(t, func() bool { return left(b) == 0 }, 30*time.Second, 10*time.Millisecond)
	})
}
