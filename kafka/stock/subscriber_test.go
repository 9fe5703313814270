package stock_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
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
