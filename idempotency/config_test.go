package idempotency_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
)

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*idempotency.Config){
		"Config.Principal is nil":                          func(c *idempotency.Config) { c.Principal = nil },
		`Config.Table "a; drop"`:                           func(c *idempotency.Config) { c.Table = "a; drop" },
		"Config.Timeout -1s":                               func(c *idempotency.Config) { c.Timeout = -time.Second },
		"Config.Retention 1m0s is shorter than two":        func(c *idempotency.Config) { c.Retention, c.Timeout = time.Minute, time.Minute },
		"Config.MaxBytes -1":                               func(c *idempotency.Config) { c.MaxBytes = -1 },
		"Config.Headers has Set-Cookie":                    func(c *idempotency.Config) { c.Headers = []string{"set-cookie"} },
		"Config.SweepEvery 1ns is less than a millisecond": func(c *idempotency.Config) { c.SweepEvery = 1 },
	} {
		cfg := idempotency.Config{Principal: idempotency.OnePrincipal}
		change(&cfg)
		_, err := idempotency.New(new(pgxpool.Pool), cfg)
		require.ErrorContains(t, err, want)
	}
	_, err := idempotency.New(nil, idempotency.Config{Principal: idempotency.OnePrincipal})
	require.ErrorContains(t, err, "pool is nil")
}

func TestRoutes_AreTheProgrammers(t *testing.T) {
	t.Parallel()
	keys, err := idempotency.New(new(pgxpool.Pool), idempotency.Config{Principal: idempotency.OnePrincipal})
	require.NoError(t, err)
	keys.Tx("charge", http.NotFoundHandler())
	require.PanicsWithValue(t, "idempotency: there are two routes charge: they would share their keys", func() {
		keys.External("charge", http.NotFoundHandler(), nil)
	})
	require.Panics(t, func() { keys.Tx("", http.NotFoundHandler()) })
	require.Panics(t, func() { keys.Tx("refund", nil) })
}

func TestCheck_NamesTheFix(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for table, fix := range map[string]string{"": "headrace migrate up", "shop.keys": "idempotency.Schema"} {
		keys, err := idempotency.New(pool, idempotency.Config{Principal: idempotency.OnePrincipal, Table: table})
		require.NoError(t, err)
		require.ErrorContains(t, keys.Check(t.Context()), fix)
	}
}
