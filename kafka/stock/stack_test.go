package stock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func effectsTable(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `create table effects (id text, payload text)`)
	return err
}

// TestStackInSomebodysRouter is a Watermill Router that was there already: watermill-kafka's Subscriber replaced by this
// one, and the stack added to its handler.
func TestStackInSomebodysRouter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
	letters := kafkatest.Topic(t, w.brokers, 2)
	pool := pgtest.New(t, migrations.Up, effectsTable)
	for i := range 20 {
		value := fmt.Sprint(i)
		if i%10 == 9 {
			value = "bad"
		}
		id := fmt.Sprint("order-", min(i, 15)) // 16 to 18 are the producer's duplicates of other bytes
		r := &kgo.Record{Topic: w.topic, Partition: int32(i % 2), Value: []byte(value), Headers: []kgo.RecordHeader{
			{Key: record.UUIDHeader, Value: []byte(id)},
		}}
		kafkatest.Produce(t, w.brokers, r)
		if i == 3 {
			kafkatest.Produce(t, w.brokers, &kgo.Record{Topic: w.topic, Partition: 0, Value: r.Value, Headers: r.Headers})
		}
	}
	for range 2 { // and all over again
		runStack(t, w, pool, letters)
		resetGroup(t, w)
	}
	var effects, distinct int
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*), count(distinct id) from effects`).Scan(&effects, &distinct))
	require.Equal(t, 15, distinct, "0 to 15 without 9")
	require.Equal(t, distinct, effects)
	reasons := map[string]int{}
	for _, l := range kafkatest.ReadAll(t, w.brokers, letters) {
		env, _, ok := dlq.Decode(headersOf(l))
		require.True(t, ok)
		reasons[string(env.Reason)]++
	}
	// A letter comes again when its record does.
	require.Equal(t, map[string]int{"permanent": 2, "id_conflict": 8}, reasons)
}

func headersOf(r *kgo.Record) []record.Header {
	hs := make([]record.Header, len(r.Headers))
	for i, h := range r.Headers {
		hs[i] = record.Header(h)
	}
	return hs
}

// resetGroup lets the next member begin at the start, as an operator may.
func resetGroup(t *testing.T, w *world) {
	t.Helper()
	w.eventually("the group is empty", func() bool { return w.members() == 0 })
	_, err := kafkatest.Admin(t, w.brokers).DeleteGroup(t.Context(), w.group)
	require.NoError(t, err)
}

// runStack runs the router until everything is committed.
func runStack(t *testing.T, w *world, pool *pgxpool.Pool, letters string) {
	t.Helper()
	inbox, err := dedup.Open(t.Context(), pool, dedup.Config{Logger: quiet()})
	require.NoError(t, err)
	defer inbox.Close()
	known, err := inbox.Route(t.Context(), dedup.RouteConfig{Group: w.group, Name: "post", MaxBatch: 1})
	require.NoError(t, err)
	writer, err := dlq.NewWriter(dlq.WriterConfig{
		Client: kafka.ClientConfig{Brokers: w.brokers, Logger: quiet()}, Group: w.group, Logger: quiet(),
		Topic: func(string) string { return letters },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, writer.Close()) }()
	route := &middleware.Route{
		Name: "post", Group: w.group, Inbox: known, Graves: known, DeadLetters: writer, Logger: quiet(),
		Retry: middleware.Policy{Base: time.Millisecond},
	}
	layers, err := middleware.Stack(route)
	require.NoError(t, err)

	s := w.subscriber()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	router.AddConsumerHandler("post", w.topic, s.Subscriber(kafka.Subscription{Gates: []kafka.Gate{route.Gates}}), post).
		AddMiddleware(layers...)
	ran := make(chan error, 1)
	go func() { ran <- router.Run(context.WithoutCancel(t.Context())) }()
	w.eventually("all is committed", func() bool { c := w.committed(); return c[0]+c[1] == 21 })
	require.NoError(t, errors.Join(s.Close(), router.Close(), <-ran))
}

// post is the handler: it finds its transaction where the stack left it.
func post(msg *message.Message) error {
	ctx := msg.Context()
	if string(msg.Payload) == "bad" {
		return errors.New("no such account")
	}
	if string(msg.Payload) == "5" && record.Of(ctx).Attempt() == 1 {
		return fault.Transient(errors.New("not now"))
	}
	_, err := dedup.Tx(ctx).Exec(ctx, `insert into effects values ($1, $2)`, msg.UUID, string(msg.Payload))
	return err
}
