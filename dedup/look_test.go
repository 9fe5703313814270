package dedup

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func TestLook(t *testing.T) {
	t.Parallel()
	eachStore(t, testLook)
}

func testLook(t *testing.T) {
	t.Parallel()

	runByID(t, "KnowsWhatARunWouldAnswer", "it knows no identities, and of what is done not how it ended", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{rec(o, 1, "")}, effect)
		b.run([]*record.Record{rec(o, 2, "")}, skip)
		b.bury(rec(o, 3, ""), "permanent")
		taken, again := rec(o, 4, ""), rec(o, 5, "")
		for _, r := range []*record.Record{taken, again} {
			b.bury(r, "permanent")
		}
		replayed, failedAgain := replay(o, taken, 40), replay(o, again, 50)
		b.run([]*record.Record{replayed}, effect)
		b.bury(failedAgain, "exhausted")

		for name, c := range map[string]struct {
			r    *record.Record
			want Answer
		}{
			"NobodyHasSeenIt":              {rec(o, 6, ""), Fresh},
			"NorItsReplay":                 {replay(o, rec(o, 6, ""), 60), Fresh},
			"Effected":                     {rec(o, 1, ""), Own},
			"EffectedTwin":                 {recAs(o, 11, "", "id-1", "value-1"), Duplicate},
			"EffectedIdOfAnotherValue":     {recAs(o, 11, "", "id-1", "other"), IDConflict},
			"EffectedOnesReplay":           {replay(o, rec(o, 1, ""), 10), Duplicate},
			"Skipped":                      {rec(o, 2, ""), OwnSkipped},
			"SkippedTwin":                  {recAs(o, 12, "", "id-2", "value-2"), Duplicate},
			"SkippedOnesReplay":            {replay(o, rec(o, 2, ""), 20), Duplicate},
			"Dead":                         {rec(o, 3, ""), DeadOwn},
			"DeadTwin":                     {recAs(o, 13, "", "id-3", "value-3"), Duplicate},
			"DeadIdOfAnotherValue":         {recAs(o, 13, "", "id-3", "other"), IDConflict},
			"DeadOnesReplay":               {replay(o, rec(o, 3, ""), 30), DeadReplay},
			"DeadOnesReplayOfAnotherValue": {replay(o, recAs(o, 3, "", "id-3", "other"), 30), IDConflict},
			"EffectedByReplay":             {rec(o, 4, ""), Own},
			"ReplayThatWasEffected":        {replay(o, taken, 40), Own},
			"SecondReplayOfIt":             {replay(o, taken, 41), Duplicate},
			"DeadAgain":                    {rec(o, 5, ""), DeadOwn},
			"ReplayThatDied":               {replay(o, again, 50), DeadOwn},
			"SecondReplayOfThat":           {replay(o, again, 51), DeadReplay},
		} {
			t.Run(name, func(t *testing.T) {
				answers, err := b.rt.Look(t.Context(), []*record.Record{rec(o, 7, ""), c.r, rec(o, 1, "")})
				require.NoError(t, err)
				require.Equal(t, []Answer{Fresh, c.want, Own}, answers)
			})
		}
		answers, err := b.rt.Look(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, answers)
		require.Equal(t, 5, query[int](b, "select count(*) from headrace.inbox"), "it writes nothing")
	})

	t.Run("RowInTheHandsOfAnotherTransactionIsNotWaitedFor", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		r := rec(newOwner(), 1, "")
		b.rival([]*record.Record{r})
		answers, err := b.rt.Look(t.Context(), []*record.Record{r})
		require.NoError(t, err)
		require.Equal(t, []Answer{Fresh}, answers)
	})

	t.Run("DatabaseAwayIsUnavailableAndAnEndedDeliveryItsCause", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn})
		rs := recs(newOwner(), 2)
		proxy.Down()
		_, err := b.rt.Look(t.Context(), rs)
		f := new(fault.Classifier).Classify(t.Context(), err)
		require.Equal(t, fault.ClassUnavailable, f.Class)
		require.Equal(t, fault.Database, f.Dependency)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(record.ErrStopping)
		_, err = b.rt.Look(ctx, rs)
		require.ErrorIs(t, err, record.ErrStopping)
	})

	t.Run("ConnectionsThatDiedInThePoolAreNoOutage", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		rs := recs(newOwner(), 2)
		b.run(rs, effect)
		for range 3 {
			b.exec("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
			answers, err := b.rt.Look(t.Context(), rs)
			require.NoError(t, err)
			require.Equal(t, []Answer{Own, Own}, answers)
		}
	})

	t.Run("NoConnectionToBeHadIsUnavailableInTime", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{MaxConns: 2}})
		for range 2 {
			conn, err := b.in.pool.Acquire(t.Context())
			require.NoError(t, err)
			defer conn.Release()
		}
		began := time.Now()
		_, err := b.rt.Look(t.Context(), recs(newOwner(), 1))
		require.Equal(t, fault.ClassUnavailable, new(fault.Classifier).Classify(t.Context(), err).Class)
		require.GreaterOrEqual(t, time.Since(began), acquireTimeout)
	})
}
