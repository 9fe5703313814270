package dedup

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// kinds do the same, with a failure of record 7.
var kinds = map[string]Work{
	"executed": unlessWork(7),
	"queued": queueUnless(7, func(_ context.Context, b *pgx.Batch, _ *record.Record) error {
		b.Queue("select 1/0")
		return nil
	}),
	"grouped": batchUnless(7, batchFailures["SQLError"]),
}

func unlessWork(n int64) Work {
	return unless(n, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		_, err := tx.Exec(ctx, "select 1/0")
		return err
	})
}

func TestKinds(t *testing.T) {
	t.Parallel()
	eachStore(t, testKinds)
}

func testKinds(t *testing.T) {
	t.Parallel()

	for name, work := range kinds {
		t.Run(name+"/OneFailsAndTheOthersAreEffectedOnce", func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{})
			o := newOwner()
			rs := make([]*record.Record, 20)
			for i := range rs {
				key := ""
				if i == 7 || i == 9 {
					key = "same"
				}
				rs[i] = rec(o, i, key)
			}
			b.runWork(rs, work)
			require.True(t, charged(rs[7]))
			requireErr(t, record.ErrNotRun, rs[9])
			b.requireLedger(18)
			b.runWork([]*record.Record{rs[9]}, work)
			b.requireLedger(19)
		})

		t.Run(name+"/EveryTripIsCutOnce", func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t, migrations.Up, schema)
			proxy := pgtest.NewProxy(t, dsn)
			b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, route: RouteConfig{Writers: 1}})
			done := 0
			next := func() []*record.Record { // none of a round is known from the last
				rs := make([]*record.Record, 6)
				o := newOwner()
				for i := range rs {
					rs[i] = rec(o, 100+done+i, "")
				}
				done += len(rs)
				return rs
			}
			b.runWork(next(), work)
			before := proxy.Requests()
			b.runWork(next(), work)
			for i := range proxy.Requests() - before {
				for _, cut := range []pgtest.Action{pgtest.CutReply, pgtest.CutBefore} {
					rs := next()
					met := proxy.Once(pgtest.At(proxy.Requests()+i), cut)
					b.runUntilCharged(rs, work)
					await(t, met)
					requireOutcomes(t, record.Effected, rs...)
					b.requireLedger(done)
				}
			}
		})
	}
}
