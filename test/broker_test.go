package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

func TestBroker(t *testing.T) {
	t.Parallel()

	// The only broker is killed with records in flight and comes back on its data, twice.
	eachStore(t, "KilledAndRestarted", func(t *testing.T, store dedup.Store) {
		cluster := kafkatest.Start(t, 1)
		w := newWorld(t, cluster.Brokers(), 4)
		w.store = store
		s := w.setup()
		s.Session = shortSession
		want := w.mixture(3000)
		m := w.start(s)
		for range 2 {
			w.past(min(w.effected()+200, want.Effected-1)) // it may be through already
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

	// The broker is paused until the member gives its partitions up for lost, and then answers as if nothing had been:
	// sometimes it still knows the member, sometimes not.
	eachStore(t, "IsSilentForASession", func(t *testing.T, store dedup.Store) {
		cluster := kafkatest.Start(t, 1)
		w := newWorld(t, cluster.Brokers(), 6)
		w.store = store
		s := w.setup()
		s.Session = shortSession
		silent := make(chan struct{}, 100)
		m := w.run(s, &record.Hooks{OnReport: func(r record.Report) {
			if r.Kind == "coordinator_silent" {
				silent <- struct{}{}
			}
		}}, s.scripted()...)
		w.flows(m)
		var want tally
		for range 4 {
			sum := w.mixture(600)
			want.Records, want.Effected = want.Records+sum.Records, want.Effected+sum.Effected
			want.Skipped, want.Dead = want.Skipped+sum.Skipped, want.Dead+sum.Dead
			w.past(w.effected() + 50)
			cluster.Pause(t, 1)
			<-silent
			cluster.Resume(t, 1)
			w.drained()
		}
		m.quit()
		require.Equal(t, want, w.one())
	})

	// Three replicas: the leader of a partition is killed under load, and everything comes to its end without it. Then
	// another is paused, as a machine that hangs: its connections stay and nobody answers.
	eachStore(t, "ALeaderIsLost", func(t *testing.T, store dedup.Store) {
		cluster := kafkatest.Start(t, 3)
		w := newWorld(t, cluster.Brokers(), 6)
		w.store = store
		s := w.setup()
		s.Session = shortSession
		want := w.mixture(3000)
		m := w.start(s)
		w.past(100)
		node := w.leader(0)
		end := w.now()
		cluster.Kill(t, node)
		w.reached(end)
		cluster.Restart(t, node)
		more := w.orders(1000, 200, order{Do: "slow", N: 1})
		w.produce(more...)
		hung := w.leader(1)
		end = w.now()
		cluster.Pause(t, hung)
		w.reached(end)
		cluster.Resume(t, hung)
		m.quit()
		want.Records += len(more)
		want.Effected += len(more)
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
