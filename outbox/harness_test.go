package outbox_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a test waits for what must come: generous, because only a broken one ever uses it up.
const patience = 30 * time.Second

// bed is an outbox and a broker.
type bed struct {
	t       testing.TB
	dsn     string
	pool    *pgxpool.Pool
	fake    *kfake.Cluster
	brokers []string

	mu       sync.Mutex
	reports  []record.Report
	forwards []record.ForwardInfo
	sizes    []record.OutboxInfo
}

func newBed(t testing.TB, opts ...kfake.Opt) *bed {
	t.Helper()
	fake := kafkatest.Fake(t, opts...)
	dsn := pgtest.DSN(t, migrations.Up)
	return &bed{t: t, dsn: dsn, pool: pgtest.Pool(t, dsn), fake: fake, brokers: fake.ListenAddrs()}
}

// config is one with which tests need not wait.
func (b *bed) config() outbox.Config {
	return outbox.Config{
		Client:       kafka.ClientConfig{Brokers: b.brokers, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))},
		PollInterval: 5 * time.Millisecond, Timeout: time.Second, Lease: time.Second, StatsInterval: time.Second,
		Hooks: &record.Hooks{
			OnReport:  func(r record.Report) { note(b, &b.reports, r) },
			OnForward: func(i record.ForwardInfo) { note(b, &b.forwards, i) },
			OnOutbox:  func(i record.OutboxInfo) { note(b, &b.sizes, i) },
		},
	}
}

func note[T any](b *bed, list *[]T, v T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, v)
}

func noted[T any](b *bed, list *[]T) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]T(nil), *list...)
}

func (b *bed) reported(kind string) (found []record.Report) {
	for _, r := range noted(b, &b.reports) {
		if r.Kind == kind {
			found = append(found, r)
		}
	}
	return found
}

// forward runs a forwarder until stop, or the test's end.
func (b *bed) forward(cfg outbox.Config) (stop func()) { return b.forwardFrom(b.pool, cfg) }

func (b *bed) forwardFrom(pool *pgxpool.Pool, cfg outbox.Config) (stop func()) {
	b.t.Helper()
	f, err := outbox.NewForwarder(pool, cfg)
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(b.t, err)
		case <-time.After(patience):
			b.t.Error("the forwarder does not end")
		}
	})
	b.t.Cleanup(stop)
	return stop
}

// publish commits msgs in a transaction of their own.
func (b *bed) publish(topic string, msgs ...*message.Message) {
	b.t.Helper()
	require.NoError(b.t, b.inTx(func(tx pgx.Tx) error { return outbox.Publisher(tx).Publish(topic, msgs...) }))
}

func (b *bed) inTx(f func(pgx.Tx) error) error {
	ctx := context.Background()
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// keyed are n messages of a key, numbered from first.
func keyed(key string, first, n int) []*message.Message {
	msgs := make([]*message.Message, n)
	for i := range msgs {
		msgs[i] = message.NewMessage(fmt.Sprintf("%s-%d", key, first+i), []byte(strconv.Itoa(first+i)))
		kafka.SetKey(msgs[i], []byte(key))
	}
	return msgs
}

// waiting is how many events are in the table.
func (b *bed) waiting() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), "select coalesce(sum(events), 0) from headrace.outbox").Scan(&n))
	return n
}

func (b *bed) drained() {
	b.t.Helper()
	b.eventually("the outbox is empty", func() bool { return b.waiting() == 0 })
}

func (b *bed) eventually(what string, f func() bool) {
	b.t.Helper()
	require.Eventually(b.t, f, patience, 5*time.Millisecond, what)
}

func (b *bed) read(topic string) []*kgo.Record { return kafkatest.ReadAll(b.t, b.brokers, topic) }

// idOf is the id that a record has.
func idOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == record.UUIDHeader {
			return string(h.Value)
		}
	}
	return ""
}

// requireInOrder says that each key has the numbers 0 to n-1, in order, when repeats are left out, and gives how many repeats
// there were.
func requireInOrder(t *testing.T, got []*kgo.Record, keys, n int) (repeats int) {
	t.Helper()
	seen, next := map[string]bool{}, map[string]int{}
	for _, r := range got {
		id := idOf(r)
		if seen[id] {
			repeats++
			continue
		}
		seen[id] = true
		number, err := strconv.Atoi(string(r.Value))
		require.NoError(t, err)
		require.Equal(t, next[string(r.Key)], number, "first write of key %q", r.Key)
		next[string(r.Key)]++
	}
	require.Len(t, next, keys)
	for key, count := range next {
		require.Equal(t, n, count, "key %q", key)
	}
	return repeats
}
