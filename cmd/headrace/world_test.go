package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// patience is for what must happen, however busy the machine is.
const patience = 60 * time.Second

// order is what the records of a world say.
type order struct {
	ID   string `json:"id"`
	Fate string `json:"fate"`
}

// world is a bed with a consumer that runs: the routes charge-order and archive-order of the group billing, on the topic
// orders.
type world struct {
	*bed
	fake    *kfake.Cluster
	dsn     string
	pool    *pgxpool.Pool
	settled chan record.SettleInfo
	// healthy is whether payments answers; an order whose fate is "down" needs it.
	healthy atomic.Bool
	// seen is how many records of the replay topic have settled.
	seen atomic.Int64
	// ended closes when a consumer's Run has returned, with err.
	ended chan struct{}
	err   error
}

func effectsTable(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `create table effects (id text, route text)`)
	return err
}

func newWorld(t *testing.T) *world {
	t.Helper()
	fake := kafkatest.Fake(t)
	w := &world{fake: fake, bed: newBedOn(t, fake.ListenAddrs(), "orders"), dsn: pgtest.DSN(t, migrations.Up, effectsTable), settled: make(chan record.SettleInfo, 100_000)}
	w.pool = pgtest.Pool(t, w.dsn)
	w.env[envDSN] = w.dsn
	return w
}

// start runs the consumer until the test ends it, or ends itself.
func (w *world) start() (stop func()) {
	w.t.Helper()
	return w.startWith(w.route("charge-order"))
}

func (w *world) startWith(routes ...consumer.AnyRoute) (stop func()) {
	w.t.Helper()
	c, err := consumer.New(consumer.Config{
		Brokers: w.brokers, Group: "billing", DB: w.pool, CreateDeadLetterTopics: true,
		HeartbeatInterval: 100 * time.Millisecond, CommitInterval: 50 * time.Millisecond,
		Hooks:  &record.Hooks{OnSettle: func(i record.SettleInfo) { w.settled <- i }},
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}, routes...)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		w.err = c.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-w.ended
		require.NoError(w.t, w.err)
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *world) route(name string) consumer.Route[order] {
	return consumer.Route[order]{Name: name, Topic: "orders", Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		switch o := e.Data; {
		case o.Fate == "down" && !w.healthy.Load():
			return fault.Transient(errors.New("payments: 503 Service Unavailable"))
		case o.Fate == "unknown" && !w.healthy.Load():
			return errors.New("no account 4711")
		case o.Fate == "stuck":
			return fault.Busy(errors.New("somebody else has the account in hand"))
		}
		_, err := tx.Exec(ctx, `insert into effects (id, route) values ($1, $2)`, e.Data.ID, name)
		return err
	}}
}

// die sends an order that dies, and waits until it has.
func (w *world) die(id, fate string) {
	w.t.Helper()
	value, err := json.Marshal(order{ID: id, Fate: fate})
	require.NoError(w.t, err)
	w.order(id, value)
	require.Equal(w.t, record.Dead, w.next().Outcome)
}

// order produces a record with an id.
func (w *world) order(id string, value []byte) {
	w.t.Helper()
	w.produce("orders", 1, time.Now(), []byte("c-"+strings.TrimPrefix(id, "order-")), value,
		record.Header{Key: record.UUIDHeader, Value: []byte(id)}, record.Header{Key: "trace-id", Value: []byte("4bf92f3577b34da6")})
}

// next is what settles next.
func (w *world) next() record.SettleInfo {
	w.t.Helper()
	select {
	case i := <-w.settled:
		return i
	case <-w.ended:
		require.FailNow(w.t, "the consumer has ended", "%v", w.err)
		return record.SettleInfo{}
	case <-time.After(patience):
		require.FailNow(w.t, "nothing settles")
		return record.SettleInfo{}
	}
}

// outcomes waits for n outcomes and counts them.
func (w *world) outcomes(n int) map[record.Outcome]int {
	w.t.Helper()
	got := map[record.Outcome]int{}
	for range n {
		got[w.next().Outcome]++
	}
	return got
}

// requireEffects checks that n records had one effect each.
func (w *world) requireEffects(n int) {
	w.t.Helper()
	var effects, distinct int
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `select count(*), count(distinct id) from effects`).Scan(&effects, &distinct))
	require.Equal(w.t, n, effects)
	require.Equal(w.t, n, distinct)
}
