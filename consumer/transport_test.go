package consumer

import (
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// countingTransport is a Source that tells what was subscribed through it.
type countingTransport struct {
	kafka.Transport

	mu   sync.Mutex
	subs []kafka.Subscription
}

func (c *countingTransport) Subscriber(sub kafka.Subscription) message.Subscriber {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = append(c.subs, sub)
	return c.Transport.Subscriber(sub)
}

func TestConfig_Transport(t *testing.T) {
	t.Parallel()

	t.Run("DeliversToEveryRouteAndItsReplays", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var made countingTransport
		var topics []string
		var subscriptions map[string]int
		cfg := b.config()
		cfg.Transport = func(sc kafka.SourceConfig) (_ kafka.Transport, err error) {
			topics, subscriptions = sc.Topics, sc.Subscriptions
			made.Transport, err = kafka.NewSource(sc)
			return &made, err
		}
		b.produce(items("ok", 3)...)
		r := b.start(cfg, effectRoute("post"))
		require.Equal(t, map[record.Outcome]int{record.Effected: 3}, b.outcomes(3))
		r.stop()
		require.Equal(t, []string{"orders", "orders.billing.replay"}, topics)
		require.Equal(t, map[string]int{"orders": 1, "orders.billing.replay": 1}, subscriptions)
		require.Len(t, made.subs, 2)
		require.False(t, made.subs[0].Replay)
		require.True(t, made.subs[1].Replay)
		require.Equal(t, made.subs[0].Name, made.subs[1].Name)
	})

	t.Run("IsToldOfEveryRouteOfATopic", func(t *testing.T) {
		t.Parallel()
		c := &Consumer{specs: []spec{
			{name: "a", topic: "orders", replay: "orders.g.replay"},
			{name: "b", topic: "orders", replay: "orders.g.replay"},
			{name: "c", topic: "bills", replay: "bills.g.replay"},
		}}
		require.Equal(t, map[string]int{"orders": 2, "orders.g.replay": 2, "bills": 1, "bills.g.replay": 1}, c.subscriptions())
	})

	t.Run("ThatFailsEndsTheStart", func(t *testing.T) {
		t.Parallel()
		refused := errors.New("not here")
		for want, transport := range map[error]func(kafka.SourceConfig) (kafka.Transport, error){
			refused: func(kafka.SourceConfig) (kafka.Transport, error) {
				var none *kafka.Source
				return none, refused // a nil pointer in an interface, which nobody may call
			},
			errNoTransport: func(kafka.SourceConfig) (kafka.Transport, error) { return nil, nil }, //nolint:nilnil // it is what is refused
		} {
			b := newBed(t)
			cfg := b.config()
			cfg.Transport = transport
			require.ErrorIs(t, b.start(cfg, effectRoute("post")).ended(), want)
		}
	})
}
