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

const (
	updateSQL    = "update acc set balance = balance + 1 where id = $1"
	updateAllSQL = "update acc set balance = balance + 1 from unnest($1::int[]) u(id) where acc.id = u.id"
)

func accountOf(r *record.Record) int { return int(1 + r.Offset%10_000) }

// BenchmarkKinds is records/s of one UPDATE a record in groups of 500, by how its SQL gets into the transaction. The
// bare loops do the same on the same Postgres with nothing around it: they insert the rows, update and commit, and could
// not tell which record fails.
func BenchmarkKinds(b *testing.B) {
	works := map[string]Work{
		"executed": Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			_, err := tx.Exec(ctx, updateSQL, accountOf(r))
			return err
		}),
		"queued": Queue(func(_ context.Context, b *pgx.Batch, r *record.Record) error {
			b.Queue(updateSQL, accountOf(r))
			return nil
		}),
		"grouped": Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			accounts := make([]int, len(rs))
			for i, r := range rs {
				accounts[i] = accountOf(r)
			}
			_, err := tx.Exec(ctx, updateAllSQL, accounts)
			return err
		}),
	}
	for _, store := range []Store{ByID, ByOffset} {
		for _, name := range []string{"executed", "queued", "grouped"} {
			b.Run(name+"/"+store.String(), func(b *testing.B) { benchmarkKind(b, works[name], store) })
		}
	}
	b.Run("bare/queued", func(b *testing.B) { benchmarkBare(b, bareQueued) })
	b.Run("bare/grouped", func(b *testing.B) { benchmarkBare(b, bareGrouped) })
}

const benchGroup = 500

func benchmarkKind(b *testing.B, work Work, store Store) {
	in, err := Open(b.Context(), pgtest.New(b, migrations.Up, schema), Config{})
	require.NoError(b, err)
	defer in.Close()
	rt, err := in.Route(b.Context(), named(RouteConfig{Writers: 1, Store: store}))
	require.NoError(b, err)
	o := newOwner()
	b.ReportAllocs()
	for n := 0; n < b.N; n += benchGroup {
		b.StopTimer()
		rs := make([]*record.Record, benchGroup)
		for i := range rs {
			rs[i] = rec(o, n+i, "")
		}
		rt.mu.Lock()
		rt.pace.limit = benchGroup
		rt.mu.Unlock()
		b.StartTimer()
		rt.Run(context.Background(), rs, work)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func benchmarkBare(b *testing.B, loop func(b *testing.B, conn *pgx.Conn, rs []*record.Record, cols *columns)) {
	pool := pgtest.New(b, migrations.Up, schema)
	conn, err := pool.Acquire(b.Context())
	require.NoError(b, err)
	defer conn.Release()
	o := newOwner()
	b.ReportAllocs()
	for n := 0; n < b.N; n += benchGroup {
		b.StopTimer()
		rs := make([]*record.Record, benchGroup)
		cols := &columns{}
		for i := range rs {
			rs[i] = rec(o, n+i, "")
		}
		b.StartTimer()
		for _, r := range rs {
			cols.add(r.Identity.Key, r.Identity.ValueHash, r.Identity.Coordinates, false)
		}
		loop(b, conn.Conn(), rs, cols)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func bareQueued(b *testing.B, conn *pgx.Conn, rs []*record.Record, cols *columns) {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(insertSQL, 1, array(cols.ids), array(cols.hashes), array(cols.coords))
	for _, r := range rs {
		batch.Queue(updateSQL, accountOf(r))
	}
	batch.Queue("commit")
	require.NoError(b, conn.SendBatch(context.Background(), batch).Close())
}

func bareGrouped(b *testing.B, conn *pgx.Conn, rs []*record.Record, cols *columns) {
	accounts := make([]int, len(rs))
	for i, r := range rs {
		accounts[i] = accountOf(r)
	}
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(insertSQL, 1, array(cols.ids), array(cols.hashes), array(cols.coords))
	batch.Queue(updateAllSQL, accounts)
	batch.Queue("commit")
	require.NoError(b, conn.SendBatch(context.Background(), batch).Close())
}
