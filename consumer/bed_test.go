package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// patience is for what must happen, however busy the machine is.
const patience = 60 * time.Second

// bed is a broker with the topic "orders" and a database with the table "effects", of one test alone.
type bed struct {
	t       *testing.T
	pool    *pgxpool.Pool
	brokers []string
	client  *kgo.Client
	settled chan record.SettleInfo // everything that settles, of every consumer of this bed
}

// effectsTable is a migration as pgtest wants one.
func effectsTable(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `create table effects (seq bigint generated always as identity, route text, id text, kind text)`)
	return err
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOn(t, pgtest.New(t, migrations.Up, effectsTable))
}

func newBedOn(t *testing.T, pool *pgxpool.Pool) *bed {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &bed{
		t: t, pool: pool, brokers: cluster.ListenAddrs(), client: client, settled: make(chan record.SettleInfo, 10_000),
	}
}

func (b *bed) config() Config {
	return Config{
		Brokers: b.brokers, Group: "billing", DB: b.pool, CreateDeadLetterTopics: true,
		HeartbeatInterval: 100 * time.Millisecond, CommitInterval: 50 * time.Millisecond,
		Hooks:  &record.Hooks{OnSettle: func(i record.SettleInfo) { b.settled <- i }},
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// item is what the records of a bed say.
type item struct {
	ID   string
	Kind string
}

// effect writes that the item had its effect.
func effect(ctx context.Context, tx pgx.Tx, route string, i item) error {
	_, err := tx.Exec(ctx, `insert into effects (route, id, kind) values ($1, $2, $3)`, route, i.ID, i.Kind)
	return err
}

// effectRoute is a route that does nothing but effect.
func effectRoute(name string) Route[item] {
	return Route[item]{Name: name, Topic: "orders", Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
		return effect(ctx, tx, name, e.Data)
	}}
}

// of makes a record of an item, with its id as Watermill's UUID.
func of(i item) *kgo.Record {
	value, err := json.Marshal(i)
	if err != nil {
		panic(err)
	}
	return &kgo.Record{
		Topic: "orders", Key: []byte(i.ID), Value: value,
		Headers: []kgo.RecordHeader{{Key: record.UUIDHeader, Value: []byte(i.ID)}},
	}
}

// items are n items of a kind.
func items(kind string, n int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = of(item{ID: fmt.Sprintf("%s-%d", kind, i), Kind: kind})
	}
	return rs
}

func (b *bed) produce(rs ...*kgo.Record) {
	b.t.Helper()
	require.NoError(b.t, b.client.ProduceSync(b.t.Context(), rs...).FirstErr())
}

// running is a consumer that runs.
type running struct {
	b    *bed
	c    *Consumer
	end  context.CancelFunc
	done chan struct{}
	err  error // of Run; valid once done is closed
}

// start lets a consumer run until the test ends it, or ends itself.
func (b *bed) start(cfg Config, routes ...AnyRoute) *running {
	b.t.Helper()
	c, err := New(cfg, routes...)
	require.NoError(b.t, err)
	ctx, end := context.WithCancel(b.t.Context())
	r := &running{b: b, c: c, end: end, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = c.Run(ctx)
	}()
	b.t.Cleanup(func() {
		end()
		_ = r.ended() // the test has looked at what it cares for
	})
	return r
}

// stop ends the consumer as a signal would, and requires that it ended well.
func (r *running) stop() {
	r.b.t.Helper()
	r.end()
	require.NoError(r.b.t, r.ended())
}

// ended waits for the end of Run.
func (r *running) ended() error {
	r.b.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		require.FailNow(r.b.t, "Run does not return")
		return nil
	}
}

// outcomes waits for n outcomes and counts them.
func (b *bed) outcomes(n int) map[record.Outcome]int {
	b.t.Helper()
	got := map[record.Outcome]int{}
	deadline := time.After(patience)
	for range n {
		select {
		case i := <-b.settled:
			got[i.Outcome]++
		case <-deadline:
			require.FailNow(b.t, "not all records were settled", "of %d only %v", n, got)
		}
	}
	return got
}

// effects are the ids that a route's handler has written, in order.
func (b *bed) effects(route string) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `select id from effects where route = $1 order by seq`, route)
	require.NoError(b.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return ids
}

// behind is how many records of "orders" the group has not committed.
func (b *bed) behind() int64 {
	b.t.Helper()
	lags, err := kadm.NewClient(b.client).Lag(b.t.Context(), "billing")
	require.NoError(b.t, err)
	return lags["billing"].Lag.Total()
}

// length is how many records a topic has.
func (b *bed) length(topic string) int64 {
	b.t.Helper()
	ends, err := kadm.NewClient(b.client).ListEndOffsets(b.t.Context(), topic)
	require.NoError(b.t, err)
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// ask is what the consumer's handler answers.
func (r *running) ask(path string) (int, string) {
	w := httptest.NewRecorder()
	r.c.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// eventually asks until the answer is right. Its deadline is generous; it never decides a test that is right.
func (b *bed) eventually(what string, right func() bool) {
	b.t.Helper()
	require.Eventually(b.t, right, patience, 20*time.Millisecond, what)
}

// missing says whether there is no such topic.
func (b *bed) missing(name string) bool {
	b.t.Helper()
	details, err := kadm.NewClient(b.client).ListTopics(b.t.Context(), name)
	require.NoError(b.t, err)
	return errors.Is(details[name].Err, kerr.UnknownTopicOrPartition)
}
