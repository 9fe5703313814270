package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
)

func TestBroker(t *testing.T) {
	t.Parallel()

	// The only broker is killed with records in flight and comes back on its data, twice.
	t.Run("KilledAndRestarted", func(t *testing.T) {
		t.Parallel()
		cluster := kafkatest.Start(t, 1)
		w := newWorld(t, cluster.Brokers(), 4)
		s := w.setup()
		s.Session = shortSession
		want := w.mixture(3000)
		m := w.start(s)
		for range 2 {
			w.past(w.effected() + 200)
			cluster.Kill(t, 1)
			cluster.Restart(t, 1)
		}
		more := w.orders(300, 100, order{})
		w.produce(more...)
		w.drained()
		m.quit()
		want.Records += len(more)
		want.Effected += len(more)
		require.Equal(t, want, w.one())
	})

	// Three replicas: the leader of the first partition is killed under load, the others go on without it. Then one is
	// paused, as a machine that hangs: its connections stay and nobody answers.
	t.Run("ALeaderIsLost", func(t *testing.T) {
		t.Parallel()
		cluster := kafkatest.Start(t, 3)
		w := newWorld(t, cluster.Brokers(), 6)
		s := w.setup()
		s.Session = shortSession
		want := w.mixture(6000)
		m := w.start(s)
		w.past(100)
		node := w.leader(0)
		cluster.Kill(t, node)
		w.past(w.effected() + 100)
		cluster.Restart(t, node)
		hung := w.leader(1)
		cluster.Pause(t, hung)
		w.past(w.effected() + 100)
		cluster.Resume(t, hung)
		w.drained()
		m.quit()
		require.Equal(t, want, w.one())
	})
}

// leader is the node that leads a partition of the world's topic.
func (w *world) leader(partition int32) int {
	w.t.Helper()
	var leader int32
	w.eventually("the partition has a leader", func() bool {
		topics, err := w.admin.ListTopics(w.t.Context(), w.topic)
		if err != nil {
			return false
		}
		details := topics[w.topic].Partitions[partition]
		leader = details.Leader
		return details.Err == nil && leader > 0
	})
	return int(leader)
}
