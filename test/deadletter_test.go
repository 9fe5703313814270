package e2e

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
)

// runs counts how often the handler ran for each record. Safe for concurrent use.
type runs struct {
	mu sync.Mutex
	of map[place]int
}

// counted is the scripted route that counts.
func (w *world) counted(s setup) (*runs, consumer.AnyRoute) {
	w.t.Helper()
	counts := &runs{of: map[place]int{}}
	return counts, s.route(w.routes[0], func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		counts.mu.Lock()
		counts.of[place{e.Partition, e.Offset}]++
		counts.mu.Unlock()
		return act(ctx, tx, w.routes[0], e)
	})
}

func (r *runs) count(at place) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[at]
}

// A fault of the dead letter topic costs its records a wait and nothing else: their handlers ran once, their offsets
// stand still, and when the topic is back each has its letter. Records of other keys go on meanwhile.
func TestDeadLetterTopic(t *testing.T) {
	t.Parallel()

	for name, err := range map[string]*kerr.Error{
		"HasTooFewReplicas": kerr.NotEnoughReplicas, "WasWrittenByTooFewReplicas": kerr.NotEnoughReplicasAfterAppend,
		"TimesOut": kerr.RequestTimedOut, "RefusesUs": kerr.TopicAuthorizationFailed, "HasLostItsLeader": kerr.NotLeaderForPartition,
	} {
		eachStore(t, name, func(t *testing.T, store dedup.Store) {
			fake := kafkatest.Fake(t)
			w := newWorld(t, fake.ListenAddrs(), 1)
			w.store = store
			bad := w.orders(3, 3, order{Do: "fail"})
			good := w.orders(50, 50, order{})
			down := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.deadLetters, Err: err, Count: -1})
			w.produce(append(bad, good...)...)
			s := w.setup()
			counts, route := w.counted(s)
			m := w.run(s, nil, route)
			require.NoError(t, down.Wait(t.Context(), 3))
			w.past(46) // keys that have nothing to do with it
			require.Zero(t, w.committed()[0], "the offset must not pass a record whose letter is not written")
			down.Remove()
			w.drained()
			m.quit()
			require.Equal(t, tally{Records: 53, Effected: 50, Dead: 3}, w.one())
			for _, r := range bad {
				require.Equal(t, 1, counts.count(placeOf(r)), "the handler ran again for the dead letter's sake")
			}
		})
	}

	// One letter is too large for the topic; the others do not wait for it.
	eachStore(t, "RefusesOneThatIsTooLarge", func(t *testing.T, store dedup.Store) {
		fake := kafkatest.Fake(t)
		w := newWorld(t, fake.ListenAddrs(), 1)
		w.store = store
		m := w.start(w.setup())
		w.flows(m)
		w.limitLetters("20000")
		large := w.record("large", order{Do: "fail"})
		large.Headers = append(large.Headers, kgo.RecordHeader{Key: "filler", Value: noise(t, 30_000)})
		w.produce(large)
		w.produce(w.orders(20, 20, order{Do: "fail"})...)
		w.eventually("the others are dead", func() bool { return len(w.readLetters()["post"]) == 20 })
		require.Zero(t, w.committed()[0])
		w.limitLetters("2000000")
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 21, Dead: 21}, w.one())
	})

	// The letter is written and nobody is told: at most a second copy, never none.
	eachStore(t, "LosesItsAnswer", func(t *testing.T, store dedup.Store) {
		fake := kafkatest.Fake(t)
		w := newWorld(t, fake.ListenAddrs(), 1)
		w.store = store
		m := w.start(w.setup())
		w.flows(m)
		lost := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: w.deadLetters, Count: 2}) // UNKNOWN_SERVER_ERROR
		w.produce(w.orders(5, 5, order{Do: "fail"})...)
		w.drained()
		m.quit()
		require.Positive(t, lost.Hits())
		require.Equal(t, tally{Records: 5, Dead: 5}, w.one())
		require.LessOrEqual(t, w.copies("post"), 3)
	})

	// A real broker cannot be made to answer NOT_ENOUGH_REPLICAS with one node: it takes as many replicas as there are for
	// enough. It can be made to refuse every letter.
	eachStore(t, "OfARealBrokerRefusesEveryLetter", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
		w.store = store
		s := w.setup()
		counts, route := w.counted(s)
		m := w.run(s, nil, route)
		w.flows(m)
		w.limitLetters("200")
		bad := w.orders(6, 6, order{Do: "fail"})
		w.produce(bad...)
		w.produce(w.orders(100, 50, order{})...)
		w.past(100 - 2*6 - 1) // keys that have nothing to do with it
		require.Empty(t, w.readLetters())
		w.limitLetters("2000000")
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 106, Effected: 100, Dead: 6}, w.one())
		for _, r := range bad {
			require.Equal(t, 1, counts.count(placeOf(r)), "the handler ran again for the dead letter's sake")
		}
	})

	eachStore(t, "OfARealBrokerIsDeletedAndMadeAgain", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
		w.store = store
		m := w.start(w.setup())
		w.flows(m)
		_, err := w.admin.DeleteTopics(t.Context(), w.deadLetters)
		require.NoError(t, err)
		w.eventually("the topic is gone", func() bool { return !w.exists(w.deadLetters) })
		w.produce(w.orders(6, 6, order{Do: "fail"})...)
		w.produce(w.orders(100, 50, order{})...)
		w.holds(m, "dead-letter-topic")
		kafkatest.CreateTopic(t, w.brokers, w.deadLetters, 1) // with fewer partitions than its source
		w.flows(m)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 106, Effected: 100, Dead: 6}, w.one())
	})

	// The last record of a partition is dead; a restart does not kill it again.
	eachStore(t, "HasTheLastRecordOnce", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.store = store
		w.produce(w.orders(5, 5, order{})...)
		w.produce(w.orders(1, 1, order{Do: "fail"})...)
		s := w.setup()
		counts, route := w.counted(s)
		m := w.run(s, nil, route)
		w.drained()
		m.quit()
		again := w.run(s, nil, route)
		w.flows(again)
		again.quit()
		require.Equal(t, tally{Records: 6, Effected: 5, Dead: 1}, w.one())
		require.Equal(t, 1, w.copies("post"))
		require.Equal(t, 1, counts.count(place{0, 5}))
	})
}

func (w *world) limitLetters(size string) {
	w.t.Helper()
	w.configure(w.deadLetters, "max.message.bytes", size)
}

func (w *world) configure(topic, name, value string) {
	w.t.Helper()
	resp, err := w.admin.AlterTopicConfigs(w.t.Context(), []kadm.AlterConfig{{Name: name, Value: &value}}, topic)
	require.NoError(w.t, err)
	require.NoError(w.t, resp[0].Err)
}
