package e2e

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
)

// commits are the offsets that members asked the broker to commit, in the order in which it was asked.
type commits struct {
	mu        sync.Mutex
	last      map[int32]int64
	backwards int
}

// see is a kfake.Fault's When: it looks on and faults nothing.
func (c *commits) see(req kmsg.Request) bool {
	commit, ok := req.(*kmsg.OffsetCommitRequest)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, topic := range commit.Topics {
		for _, p := range topic.Partitions {
			if p.Offset < c.last[p.Partition] {
				c.backwards++
			}
			c.last[p.Partition] = p.Offset
		}
	}
	return false
}

func TestCommit(t *testing.T) {
	t.Parallel()

	// Commits fail and are sent again, members change, claims end: no offset is ever asked to go back.
	eachStore(t, "NeverGoesBackwards", func(t *testing.T, store dedup.Store) {
		fake := kafkatest.Fake(t)
		w := newWorld(t, fake.ListenAddrs(), 4)
		w.store = store
		seen := &commits{last: map[int32]int64{}}
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, When: seen.see, Count: -1})
		want := w.mixture(2000)
		first := w.start(w.setup())
		for range 3 {
			w.past(w.effected() + 100)
			fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorLoadInProgress, Count: 3})
			other := w.start(w.setup())
			w.past(w.effected() + 100)
			other.quit()
		}
		w.drained()
		first.quit()
		require.Equal(t, want, w.one())
		require.Zero(t, seen.backwards)
		require.NotEmpty(t, seen.last)
	})

	// The stop begins while the coordinator has not answered a commit yet.
	eachStore(t, "InFlightIsFinishedByAStop", func(t *testing.T, store dedup.Store) {
		fake := kafkatest.Fake(t)
		w := newWorld(t, fake.ListenAddrs(), 2)
		w.store = store
		release, asked := make(chan struct{}), make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		open := sync.OnceFunc(func() { close(release) })
		t.Cleanup(open)
		fake.ControlKey(kmsg.OffsetCommit.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			once()
			fake.SleepControl(func() { <-release })
			return nil, nil, false
		})
		m := w.start(w.setup())
		w.produce(w.orders(100, 20, order{})...)
		<-asked
		w.past(99)
		m.stop()
		w.eventually("it is stopping", func() bool { return m.c.Ready() != nil })
		open()
		m.quit()
		require.Equal(t, tally{Records: 100, Effected: 100}, w.one()) // committed to the end
	})
}
