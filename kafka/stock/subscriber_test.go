package stock_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
)

// brokers are the two kinds that a behaviour is tested on.
func brokers(t *testing.T, test func(t *testing.T, brokers []string)) {
	t.Helper()
	t.Run("Fake", func(t *testing.T) {
		t.Parallel()
		test(t, kafkatest.Fake(t).ListenAddrs())
	})
	t.Run("Real", func(t *testing.T) {
		t.Parallel()
		test(t, kafkatest.Real(t).Brokers())
	})
}

func TestRouteThatSubscribesLateMissesNothingOfItsTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.produce(0, 10)
	s := w.subscriber(func(c *stock.Config) { c.Source.Subscriptions = map[string]int{w.topic: 2} })
	var got [2]seen
	for i := range got {
		handle(w.messages(s.Subscriber(kafka.Subscription{Name: string(rune('a' + i))})), func(msg *message.Message) error {
			got[i].add(one(t, msg))
			return nil
		})
		<-time.After(2 * time.Second) // it joins, and has settled everything, if it does not wait for the other
	}
	w.eventually("all is committed", func() bool { return w.committed()[0] == 10 })
	require.NoError(t, s.Close())
	require.Equal(t, upTo(10), got[0].of(0))
	require.Equal(t, upTo(10), got[1].of(0))
}

func TestEveryRecordComesOnceAndInOrderAndIsCommitted(t *testing.T) {
	t.Parallel()
	brokers(t, func(t *testing.T, brokers []string) {
		w := newWorld(t, brokers, 3)
		for p := range int32(3) {
			w.produce(p, 50)
		}
		var got seen
		s := w.subscriber()
		handlers := handle(w.messages(s), func(msg *message.Message) error {
			got.add(one(t, msg))
			return nil
		})
		w.eventually("all are handled", func() bool { return got.total() >= 150 })
		require.NoError(t, s.Ready())
		require.NoError(t, s.Close())
		handlers.Wait()
		for p := range int32(3) {
			require.Equal(t, upTo(50), got.of(p))
		}
		require.Equal(t, map[int32]int64{0: 50, 1: 50, 2: 50}, w.committed())
		require.Empty(t, w.kinds())
		require.Equal(t, 3, w.events("assigned"))
		require.Equal(t, 3, w.events("stopped"))
	})
}
