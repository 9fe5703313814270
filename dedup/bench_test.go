package dedup

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// BenchmarkRun is records/s through one route, handlers that execute nothing, one UPDATE, or one INSERT, in messages of
// a size and with so many of them waiting.
func BenchmarkRun(b *testing.B) {
	handlers := map[string]Apply{
		"nothing": func(context.Context, pgx.Tx, *record.Record) error { return nil },
		"insert":  effect,
		"update": func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			_, err := tx.Exec(ctx, "update acc set balance = balance + 1 where id = $1", 1+r.Offset%10_000)
			return err
		},
	}
	for _, name := range []string{"nothing", "insert", "update"} {
		for _, size := range []int{1, 100, 500} {
			for _, lanes := range []int{1, 4} {
				b.Run(fmt.Sprintf("%s/message=%d/lanes=%d", name, size, lanes), func(b *testing.B) {
					benchmarkRun(b, handlers[name], size, lanes)
				})
			}
		}
	}
}

func benchmarkRun(b *testing.B, apply Apply, size, lanes int) {
	pool := pgtest.New(b, migrations.Up, schema)
	in, err := Open(b.Context(), pool, Config{})
	require.NoError(b, err)
	defer in.Close()
	rt, err := in.Route(b.Context(), named(RouteConfig{}))
	require.NoError(b, err)
	benchmarkRoute(b, rt, apply, size, lanes)
}

func benchmarkRoute(b *testing.B, rt *Route, work Work, size, lanes int) {
	o := newOwner()
	rs := make([]*record.Record, b.N)
	for i := range rs {
		rs[i] = rec(o, i, "")
	}
	messages := make(chan []*record.Record, len(rs)/size+1)
	for len(rs) > 0 {
		n := min(size, len(rs))
		messages <- rs[:n]
		rs = rs[n:]
	}
	close(messages)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range lanes {
		wg.Go(func() {
			for m := range messages {
				rt.Run(context.Background(), m, work)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	require.Len(b, o.settled, b.N)
}

// BenchmarkBury is dead rows/s with many records waiting.
func BenchmarkBury(b *testing.B) {
	pool := pgtest.New(b, migrations.Up, schema)
	in, err := Open(b.Context(), pool, Config{})
	require.NoError(b, err)
	defer in.Close()
	rt, err := in.Route(b.Context(), named(RouteConfig{}))
	require.NoError(b, err)
	o := newOwner()
	next := make(chan *record.Record, b.N)
	for i := range b.N {
		next <- rec(o, i, "")
	}
	close(next)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for r := range next {
				if _, err := rt.Bury(context.Background(), r, Grave{Reason: "permanent"}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkIdentify is what a record's identity costs.
func BenchmarkIdentify(b *testing.B) {
	o := newOwner()
	r := recAs(o, 1, "", "0198f3a2-5b1c-7def-8123-456789abcdef", string(make([]byte, 300)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Identify(r, Header("id")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStatements is what the look at a handler's SQL costs.
func BenchmarkStatements(b *testing.B) {
	s := &statements{}
	const sql = "update accounts set balance = balance - $1, changed = now() where id = $2 and balance >= $1"
	b.Run("seen", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.check(sql)
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = s.scan(sql)
		}
	})
}
