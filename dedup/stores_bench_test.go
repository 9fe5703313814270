package dedup

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// benchmarkKinds are one INSERT a record, in each way in which a handler may write it.
var benchmarkKinds = map[string]Work{
	"executed": Apply(effect),
	"queued": Queue(func(_ context.Context, b *pgx.Batch, r *record.Record) error {
		b.Queue("insert into eff (n) values ($1)", r.Offset)
		return nil
	}),
	"grouped": Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
		ns := make([]int64, len(rs))
		for i, r := range rs {
			ns[i] = r.Offset
		}
		_, err := tx.Exec(ctx, "insert into eff (n) select unnest($1::bigint[])", ns)
		return err
	}),
}

// BenchmarkStores is records/s of a route with full groups (messages of 500, four of them at a time), with each store.
func BenchmarkStores(b *testing.B) {
	for _, kind := range []string{"executed", "queued", "grouped"} {
		for _, store := range []Store{ByID, ByOffset} {
			b.Run(fmt.Sprintf("%s/store=%s", kind, store), func(b *testing.B) {
				pool := pgtest.New(b, migrations.Up, schema)
				in, err := Open(b.Context(), pool, Config{})
				require.NoError(b, err)
				defer in.Close()
				rt, err := in.Route(b.Context(), named(RouteConfig{Store: store}))
				require.NoError(b, err)
				benchmarkRoute(b, rt, benchmarkKinds[kind], 500, 4)
			})
		}
	}
}

// BenchmarkMark is the work of a mark in this process: a set with so many holes and a group of 500 more.
func BenchmarkMark(b *testing.B) {
	for _, holes := range []int{0, 100, 5000} {
		b.Run(fmt.Sprintf("holes=%d", holes), func(b *testing.B) {
			x := &image{epoch: 1}
			for i := range int64(holes) {
				x.done = x.done.add(run{2*i + 1, 2*i + 2})
			}
			o := newOwner()
			rs := make([]*record.Record, 500)
			for i := range rs {
				rs[i] = rec(o, 2*holes+1+i, "")
			}
			b.ReportAllocs()
			for b.Loop() {
				m, _ := x.newMark(lease{x, 1}, rs, nil)
				var args markArgs
				args.add(&m)
			}
		})
	}
}
