package idempotency_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// storm is clients without patience, handlers that fail, hang and misbehave in every way, backends that are killed, and
// operators who are slow to decide, on few keys and three processes.
type storm struct {
	seed    uint64
	routes  []string
	keys    int     // of each route and tenant
	rough   float64 // how often a handler hesitates, and fails
	timeout time.Duration
	most    time.Duration
	mutate  func(*idempotency.Keys)
}

// id is what has its effect once. Both routes and both tenants use the same keys.
type id struct{ route, tenant, key string }

func (i id) String() string { return i.route + "/" + i.tenant + "/" + i.key }

type stormWorld struct {
	storm

	ctx       context.Context
	pool      *pgxpool.Pool // of the audit and the operator
	operator  *idempotency.Keys
	processes []map[string]http.Handler // by route
	bank      *bank
	calm      atomic.Bool // nothing goes wrong any more
	sources   atomic.Uint64
	killed    atomic.Int64
	resolved  atomic.Int64

	mu      sync.Mutex
	told    map[string]int
	answers map[id]map[string]bool
	wrong   map[id]bool // was given somebody else's
}

const processes = 3

func newStormWorld(t *testing.T, s storm) *stormWorld {
	t.Helper()
	dsn := pgtest.DSN(t, migrations.Up)
	w := &stormWorld{
		storm: s, ctx: context.WithoutCancel(t.Context()), pool: pgtest.Pool(t, dsn), bank: newBank(),
		told: map[string]int{}, answers: map[id]map[string]bool{}, wrong: map[id]bool{},
	}
	_, err := w.pool.Exec(t.Context(), "create table charges (id bigint generated always as identity, tenant text, key text)")
	require.NoError(t, err)
	w.operator = w.open(t, w.pool)
	for range processes {
		keys := w.open(t, w.stormy(t, dsn))
		w.processes = append(w.processes, map[string]http.Handler{
			"charge": keys.Tx("charge", http.HandlerFunc(w.charge)),
			"pay":    keys.External("pay", http.HandlerFunc(w.pay), w.reconcile),
		})
	}
	return w
}

// stormy is a pool whose sessions are killed.
func (w *stormWorld) stormy(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.MaxConns = 8
	cfg.ConnConfig.RuntimeParams["application_name"] = "storm"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func (w *stormWorld) open(t *testing.T, pool *pgxpool.Pool) *idempotency.Keys {
	t.Helper()
	keys, err := idempotency.New(pool, idempotency.Config{
		Principal: func(r *http.Request) string { return r.Header.Get("Tenant") },
		Timeout:   w.timeout, Retention: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Hooks: idempotency.Hooks{OnRequest: func(i idempotency.RequestInfo) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told[i.Outcome]++
		}},
	})
	require.NoError(t, err)
	if w.mutate != nil {
		w.mutate(keys)
	}
	return keys
}

func (w *stormWorld) rand() *rand.Rand { return rand.New(rand.NewPCG(w.seed, w.sources.Add(1))) }

func (w *stormWorld) ids() (all []id) {
	for _, route := range w.routes {
		for _, tenant := range []string{"acme", "bolt"} {
			for n := range w.keys {
				all = append(all, id{route, tenant, fmt.Sprint("k", n)})
			}
		}
	}
	return all
}

func (w *stormWorld) outcomes() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.told)
}

func (w *stormWorld) answered(i id) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.answers[i])
}

func (w *stormWorld) foreign(i id) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong[i]
}

// run lets the storm blow, then has every key asked for until it is done.
func (w *stormWorld) run() {
	ctx, stop := context.WithTimeout(w.ctx, w.most)
	defer stop()
	var all sync.WaitGroup
	var clients sync.WaitGroup
	for range 32 {
		clients.Go(func() { w.client(ctx) })
	}
	all.Go(func() { w.chaos(ctx) })
	for range 2 {
		all.Go(func() { w.decide(ctx) })
	}
	all.Go(func() { w.sweep(ctx) })
	clients.Wait() // until every key is answered, or the time is over
	stop()
	all.Wait()
	w.calm.Store(true)
	w.settle()
}

// settle asks for every key once more, until it is answered for good.
func (w *stormWorld) settle() {
	deadline := time.Now().Add(time.Minute)
	work := make(chan id)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			rng := w.rand()
			for i := range work {
				for s := 0; !final(s) && s != http.StatusUnprocessableEntity && time.Now().Before(deadline); {
					pause(10 * time.Millisecond)
					s = w.ask(w.ctx, rng, i)
				}
			}
		})
	}
	for _, i := range w.ids() {
		work <- i
	}
	close(work)
	all.Wait()
}

func pause(d time.Duration) { <-time.After(d) }

// chaos kills backends.
func (w *stormWorld) chaos(ctx context.Context) {
	for rng := w.rand(); ctx.Err() == nil; {
		pause(time.Duration(10+rng.IntN(40)) * time.Millisecond)
		tag, err := w.pool.Exec(w.ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where application_name = 'storm' and datname = current_database() order by random() limit 1`)
		if err == nil {
			w.killed.Add(tag.RowsAffected())
		}
	}
}

// decide is an operator who finds out what became of the unknown keys, and has a coffee before saying so.
func (w *stormWorld) decide(ctx context.Context) {
	for rng := w.rand(); ctx.Err() == nil; {
		list, _ := w.operator.Unknown(w.ctx, 20)
		found := make([]string, len(list))
		for n, u := range list {
			found[n] = w.bank.find(id{u.Route, u.Principal, u.Key.Key})
		}
		pause(time.Duration(rng.Int64N(int64(w.timeout))))
		for n, u := range list {
			var err error
			switch {
			case rng.IntN(2) == 0:
				continue
			case found[n] != "":
				err = w.operator.ResolveDone(w.ctx, u, idempotency.Answer{Status: http.StatusCreated, Body: []byte(found[n])})
			default:
				err = w.operator.ResolveNotDone(w.ctx, u)
			}
			if err == nil {
				w.resolved.Add(1)
			}
		}
	}
}

func (w *stormWorld) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = w.operator.Sweep(w.ctx) // nothing is past its retention
		pause(10 * time.Millisecond)
	}
}
