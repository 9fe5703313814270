package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

func TestSchema(t *testing.T) {
	t.Parallel()

	t.Run("MakesWhatTheMigrationMakes", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t, migrations.Up)
		for range 2 { // again does nothing
			_, err := pool.Exec(t.Context(), "create schema if not exists shop; "+idempotency.Schema("shop.idempotency"))
			require.NoError(t, err)
		}
		require.NotEmpty(t, looks(t, pool, "shop"))
		require.Equal(t, looks(t, pool, "headrace"), looks(t, pool, "shop"))
	})

	t.Run("IsAllThatAServiceNeeds", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge), func(b *bed, c *idempotency.Config) {
			b.pool = pgtest.New(t, withEffects, withKeys)
			c.Table = "keys"
		})
		require.Equal(t, http.StatusCreated, b.post("k", "7").status)
		require.True(t, b.post("k", "7").replayed())
	})

	t.Run("TakesNothingButNames", func(t *testing.T) {
		t.Parallel()
		for _, table := range []string{"", "A", "a.b.c", "a b", `"a"`, "a;", strings.Repeat("a", 41)} {
			require.Panics(t, func() { idempotency.Schema(table) }, table)
		}
	})
}

func withKeys(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, idempotency.Schema("keys"))
	return err
}

// looks describes the table in a schema: columns, constraints, indexes, comment.
func looks(t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	const query = `select attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' || attcollation || ' ' ||
			coalesce(pg_get_expr(adbin, adrelid), '')
		from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum where attrelid = to_regclass($1) and attnum > 0
		union all select pg_get_constraintdef(oid) from pg_constraint where conrelid = to_regclass($1)
		union all select replace(indexdef, $1, 'x') from pg_indexes where schemaname || '.' || tablename = $1
		union all select obj_description(to_regclass($1), 'pg_class')
		order by 1`
	rows, err := pool.Query(t.Context(), query, schema+".idempotency")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

func TestSweep(t *testing.T) {
	t.Parallel()

	t.Run("ForgetsWhatIsFinishedAndPastItsRetention", func(t *testing.T) {
		t.Parallel()
		b := open(t, func(b *bed) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /charges", b.keys.Tx("charge", http.HandlerFunc(charge)))
			mux.Handle("POST /payouts", b.keys.External("payout", http.HandlerFunc(status(502)), nil))
			return mux
		})
		b.post("old", "7")
		b.post("unknown", "7", func(r *http.Request) { r.URL.Path = "/payouts" })
		b.exec(`insert into headrace.idempotency (route, method, principal, key, fingerprint, token, status, header, body, finished_at)
			select route, method, principal, 'old-' || n, fingerprint, token, status, header, body, finished_at
			from headrace.idempotency, generate_series(1, 2500) n where key = 'old'`)
		b.exec("update headrace.idempotency set started_at = started_at - interval '31 days', finished_at = finished_at - interval '31 days', " +
			"deadline = deadline - interval '31 days'")
		b.post("new", "7")
		swept, err := b.keys.Sweep(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2501, swept)
		require.Equal(t, 2, b.rows(), "what is new, and what is unknown")
		require.Equal(t, http.StatusCreated, b.post("old", "7").status)
		require.Equal(t, 2, b.effects("old"), "past its retention a key is a new one")
	})

	// A service that was down for long, or has just been given a shorter retention, has many; and its requests come meanwhile.
	t.Run("SeveralProcessesSweepWhileRequestsCome", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge))
		const old = 20_000
		b.exec(fmt.Sprintf(`insert into headrace.idempotency (route, method, principal, key, fingerprint, token, status, header, body, finished_at)
			select 'charge', 'POST', 'acme', 'old-' || n, '', gen_random_uuid(), 201, '', '', statement_timestamp() - interval '31 days' - interval '1 ms' * (n / 7)
			from generate_series(1, %d) n`, old))
		var swept atomic.Int64
		var sweeps, clients sync.WaitGroup
		for range 3 {
			sweeps.Go(func() {
				n, err := b.keys.Sweep(t.Context())
				if err != nil {
					t.Error(err)
				}
				swept.Add(n)
			})
		}
		for n := range 4 {
			clients.Go(func() {
				for i := range 25 {
					if r := b.post(fmt.Sprint("new-", n, "-", i), "7"); r.status != http.StatusCreated {
						t.Errorf("%d %v", r.status, r.err)
					}
				}
			})
		}
		sweeps.Wait()
		clients.Wait()
		rest, err := b.keys.Sweep(t.Context()) // what each left to another
		require.NoError(t, err)
		require.EqualValues(t, old, swept.Load()+rest)
		require.Equal(t, 100, b.rows())
	})

	t.Run("RunDoesItUntilItsContextEnds", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge), func(_ *bed, c *idempotency.Config) { c.SweepEvery = time.Millisecond })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- b.keys.Run(ctx) }()
		b.post("k", "7")
		b.exec("update headrace.idempotency set finished_at = finished_at - interval '31 days'")
		b.until(func() bool { return b.rows() == 0 })
		cancel()
		require.NoError(t, <-ended)
	})
}
