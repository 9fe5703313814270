package kafka_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
)

func TestSourceJoin(t *testing.T) {
	t.Parallel()
	t.Run("WaitsForEveryRouteOfATopic", func(t *testing.T) { virtual(t, 1, joinWaitsForRoutes) })
}

// joinWaitsForRoutes: the second route is late, by more than the Source waits for whoever subscribes unannounced.
func joinWaitsForRoutes(w *world) {
	w.produceMany(0, 10)
	got := [2]seen{}
	s := w.source(func(c *kafka.SourceConfig) {
		c.Topics, c.Subscriptions = []string{"t"}, map[string]int{"t": 2}
	})
	for i := range got {
		wg := handle(w.subscribe(s.Subscriber(kafka.Subscription{Name: string(rune('a' + i))})), func(msg *message.Message) error {
			got[i].add(records(msg)[0])
			return nil
		})
		defer wg.Wait()
		wait(5 * time.Second)
	}
	require.ElementsMatch(w.t, upTo(10), got[0].of(0))
	require.ElementsMatch(w.t, upTo(10), got[1].of(0))
	require.EqualValues(w.t, 10, w.committed(0))
	require.NoError(w.t, s.Close())
}
