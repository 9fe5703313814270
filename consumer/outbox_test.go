package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// told is the event that an item's effect makes known.
func told(i item) *message.Message {
	msg := message.NewMessage("told-"+i.ID, []byte(i.ID))
	kafka.SetKey(msg, []byte(i.Kind))
	return msg
}

// tellers are routes of each kind that publish in their transactions; items named bad fail after they have.
func tellers() map[string]AnyRoute {
	verdict := func(i item) error {
		if strings.HasSuffix(i.ID, "7") {
			return fault.Permanent(errBad)
		}
		return nil
	}
	return map[string]AnyRoute{
		"executed": Route[item]{Name: "tell", Topic: "orders", Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
			if err := outbox.Publisher(tx).Publish("told", told(e.Data)); err != nil {
				return err
			}
			if err := effect(ctx, tx, "tell", e.Data); err != nil {
				return err
			}
			return verdict(e.Data)
		}},
		"queued": QueueRoute[item]{Name: "tell", Topic: "orders", Queue: func(b *pgx.Batch, e Event[item]) error {
			b.Queue("insert into effects (route, id, kind) values ('tell', $1, $2)", e.Data.ID, e.Data.Kind)
			if err := outbox.Queue(b, "told", told(e.Data)); err != nil {
				return err
			}
			return verdict(e.Data)
		}},
		"grouped": BatchRoute[item]{Name: "tell", Topic: "orders", Apply: func(ctx context.Context, tx pgx.Tx, es []Event[item]) error {
			failed := fault.Members{}
			for i, e := range es {
				if err := verdict(e.Data); err != nil {
					failed[i] = err
				}
				if err := outbox.Publisher(tx).Publish("told", told(e.Data)); err != nil {
					return err
				}
				if err := effect(ctx, tx, "tell", e.Data); err != nil {
					return err
				}
			}
			if len(failed) > 0 {
				return failed
			}
			return nil
		}},
	}
}

var errBad = fmt.Errorf("a bad item")

func TestOutbox(t *testing.T) {
	t.Parallel()
	for kind, route := range tellers() {
		t.Run("EachEffectIsToldOnceAndNothingElse/"+kind, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			kafkatest.CreateTopic(t, b.brokers, "told", 2)
			cfg := b.config()
			cfg.Outbox = &outbox.Config{}
			b.produce(items("k", 200)...)
			r := b.start(cfg, route)
			require.Equal(t, map[record.Outcome]int{record.Effected: 180, record.Dead: 20}, b.outcomes(200))
			b.forwarded()
			r.stop()
			ids := b.toldIDs()
			require.Len(t, ids, 180)
			require.ElementsMatch(t, b.effects("tell"), ids)
			require.Contains(t, scrape(t, r.c.cfg.Registry), `headrace_outbox_events_total{result="confirmed"} 180`)
		})
	}

	t.Run("APlainRouterPublishesInItsHandlersTransaction", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		kafkatest.CreateTopic(t, b.brokers, "told", 1)
		cfg := b.config()
		cfg.Outbox = &outbox.Config{}
		route := effectRoute("tell")
		route.Middlewares = []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				if err := outbox.Publisher(dedup.Tx(msg.Context())).Publish("told", message.NewMessage(msg.UUID, msg.Payload)); err != nil {
					return nil, err
				}
				return next(msg)
			}
		}}
		b.produce(items("k", 20)...)
		r := b.start(cfg, route)
		b.outcomes(20)
		b.forwarded()
		r.stop()
		require.EqualValues(t, 20, b.length("told"))
	})

	t.Run("PublishingBesideTheTransactionIsRefused", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		kafkatest.CreateTopic(t, b.brokers, "told", 1)
		pub, err := kafka.NewPublisher(kafka.PublisherConfig{Client: b.config().client()})
		require.NoError(t, err)
		defer func() { require.NoError(t, pub.Close()) }()
		var mu sync.Mutex
		var errs []error
		route := Route[item]{Name: "tell", Topic: "orders", Apply: func(ctx context.Context, _ pgx.Tx, e Event[item]) error {
			msg := told(e.Data)
			msg.SetContext(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, pub.Publish("told", msg), pub.PublishRecords(ctx, kafka.ProducerRecord{Topic: "told"}))
			return errs[0]
		}}
		b.produce(items("k", 1)...)
		r := b.start(b.config(), route)
		require.Equal(t, map[record.Outcome]int{record.Dead: 1}, b.outcomes(1))
		r.stop()
		for _, err := range errs {
			require.ErrorContains(t, err, "use outbox.Publisher(tx)")
		}
		require.Zero(t, b.length("told"))
	})

	t.Run("AnImpossibleOneIsRefusedAtStart", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		cfg.Outbox = &outbox.Config{MaxBatch: -1}
		_, err := New(cfg, route)
		require.ErrorContains(t, err, "Config.MaxBatch -1 is not between")
	})
}

// forwarded waits for the outbox to be empty.
func (b *bed) forwarded() {
	b.t.Helper()
	b.eventually("the outbox is empty", func() bool {
		var n int
		require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "select coalesce(sum(events), 0) from headrace.outbox").Scan(&n))
		return n == 0
	})
}

// toldIDs are what was told, and each has its id.
func (b *bed) toldIDs() (ids []string) {
	b.t.Helper()
	for _, r := range kafkatest.ReadAll(b.t, b.brokers, "told") {
		ids = append(ids, string(r.Value))
		require.True(b.t, slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool {
			return h.Key == record.UUIDHeader && string(h.Value) == "told-"+string(r.Value)
		}))
	}
	return ids
}
