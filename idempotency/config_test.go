package idempotency_test

import (
	"bytes"
	"log/slog"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
)

const day = 24 * time.Hour

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*idempotency.Config){
		"Config.Principal is nil":                           func(c *idempotency.Config) { c.Principal = nil },
		`Config.Table "a; drop"`:                            func(c *idempotency.Config) { c.Table = "a; drop" },
		"Config.Timeout -1s":                                func(c *idempotency.Config) { c.Timeout = -time.Second },
		"Config.Timeout 600h0m0s is longer than 576h0m0s":   func(c *idempotency.Config) { c.Timeout, c.Retention = 25*day, 60*day },
		"Config.Timeout 2562047h47m16.854775807s is longer": func(c *idempotency.Config) { c.Timeout = math.MaxInt64 },
		"Config.Retention 1m0s is shorter than two":         func(c *idempotency.Config) { c.Retention, c.Timeout = time.Minute, time.Minute },
		"topic 168h + letters 336h + replay 336h30m = 840h30m exceed Config.Retention 720h by 120h30m: a repeat would come after its key " +
			"is forgotten, and be carried out again; raise Retention to 840h30m": func(c *idempotency.Config) {
			c.Repeats = []idempotency.Repeat{{"topic", 7 * day}, {"letters", 14 * day}, {"replay", 14*day + 30*time.Minute}}
		},
		"a 2562047h47m16.854775807s + b 2562047h47m16.854775807s = 2562047h47m16.854775807s exceed": func(c *idempotency.Config) {
			c.Repeats = []idempotency.Repeat{{"a", math.MaxInt64}, {"b", math.MaxInt64}}
		},
		`Config.Repeats[0], "the topic", is for -1ms: give a time`: func(c *idempotency.Config) {
			c.Repeats = []idempotency.Repeat{{"the topic", -time.Millisecond}}
		},
		"Config.MaxBytes -1":                               func(c *idempotency.Config) { c.MaxBytes = -1 },
		"Config.Headers has Set-Cookie":                    func(c *idempotency.Config) { c.Headers = []string{"set-cookie"} },
		"Config.SweepEvery 1ns is less than a millisecond": func(c *idempotency.Config) { c.SweepEvery = 1 },
	} {
		cfg := idempotency.Config{Principal: idempotency.OnePrincipal}
		change(&cfg)
		_, err := idempotency.New(new(pgxpool.Pool), cfg)
		require.ErrorContains(t, err, want)
	}
	_, err := idempotency.New(new(pgxpool.Pool), idempotency.Config{
		Principal: idempotency.OnePrincipal, Repeats: []idempotency.Repeat{{"letters", 14 * day}, {"replay", 14 * day}, {"holds", 2 * day}},
	})
	require.NoError(t, err, "as long as it is remembered, and no longer")
	_, err = idempotency.New(nil, idempotency.Config{Principal: idempotency.OnePrincipal})
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

func TestRedactError_GivesTheTextThatIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := open(t, tx(charge), func(_ *bed, c *idempotency.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.RedactError = func(error) string { return "as asked, token=abcdefgh" }
	})
	b.pool.Close()
	require.Equal(t, http.StatusServiceUnavailable, b.post("k", "7").status)
	b.until(func() bool { return b.told(idempotency.Failed) == 1 })
	require.Contains(t, log.String(), `error="as asked, token=***"`)
}
