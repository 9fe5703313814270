package e2e

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// stockSetup is of a member under watermill-kafka's Subscriber.
func (w *world) stockSetup() setup {
	s := w.setup()
	s.Stock = true
	return s
}

// TestUnderWatermillKafka is what holds although the transport is watermill-kafka's.
func TestUnderWatermillKafka(t *testing.T) {
	t.Parallel()

	t.Run("EveryRecordHasOneOutcome", func(t *testing.T) {
		t.Parallel()
		for kind, brokers := range map[string]func() []string{
			"Fake": func() []string { return kafkatest.Fake(t).ListenAddrs() },
			"Real": func() []string { return kafkatest.Real(t).Brokers() },
		} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, brokers(), 4)
				w.produce(w.orders(200, 50, order{})...)
				w.produce(w.orders(10, 10, order{Do: "fail"})...)
				w.produce(w.orders(10, 10, order{Do: "skip"})...)
				w.produce(w.orders(10, 10, order{Do: "panic"})...)
				w.produce(w.orders(10, 10, order{Do: "flaky", N: 1})...)
				m := w.start(w.stockSetup())
				w.drained()
				m.quit()
				require.Equal(t, tally{Records: 240, Effected: 210, Skipped: 10, Dead: 20}, w.one())
				require.Equal(t, map[string]int{"permanent": 10, "panic": 10}, w.reasons("post"))
			})
		}
	})

	eachStore(t, "KilledThreeTimesInMidFlight", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.store = store
		w.produce(w.orders(3000, 300, order{})...)
		w.produce(w.orders(10, 10, order{Do: "fail"})...)
		s := w.stockSetup()
		s.Session = shortSession
		for range 3 {
			p := w.spawn(s)
			w.past(w.effected() + 100)
			p.kill()
		}
		last := w.spawn(s)
		w.drained()
		last.quit()
		require.Equal(t, tally{Records: 3010, Effected: 3000, Dead: 10}, w.one())
	})

	eachStore(t, "ZombieHasNoSecondEffect", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
		w.store = store
		s := w.stockSetup()
		s.Session = shortSession
		zombie := w.spawn(s)
		w.produce(w.orders(1000, 100, order{Do: "slow", N: 2})...)
		w.past(50)
		zombie.signal(syscall.SIGSTOP)
		heir := w.spawn(s)
		w.past(w.effected() + 100) // the heir has the partitions
		zombie.signal(syscall.SIGCONT)
		w.produce(w.orders(200, 100, order{})...)
		w.drained()
		zombie.quit()
		heir.quit()
		require.Equal(t, tally{Records: 1200, Effected: 1200}, w.one())
	})

	eachStore(t, "MembersComeAndGoUnderLoad", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.store = store
		w.produce(w.orders(3000, 300, order{Do: "slow", N: 1})...)
		s := w.stockSetup()
		stays := w.start(s)
		for range 3 {
			w.past(w.effected() + 100)
			guest := w.start(s)
			w.past(w.effected() + 100)
			guest.quit()
		}
		w.drained()
		stays.quit()
		require.Equal(t, tally{Records: 3000, Effected: 3000}, w.one())
	})

	t.Run("TwoRoutesOnOneTopic", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 3)
		w.routes = []string{"post", "mail"}
		w.produce(w.orders(200, 50, order{})...)
		w.produce(w.orders(5, 5, order{Do: "fail"})...)
		m := w.start(w.stockSetup())
		w.drained()
		m.quit()
		for _, route := range w.routes {
			require.Equal(t, tally{Records: 205, Effected: 200, Dead: 5}, w.audit()[route])
		}
	})

	// The audit compares letters and records byte for byte, nil with empty too.
	t.Run("DeadLettersAreLossless", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Real(t).Brokers(), 3)
		for _, key := range [][]byte{nil, {}, []byte("k"), {0xff, 0}} {
			for _, value := range [][]byte{nil, {}, []byte("\xff\x00"), []byte("not json")} {
				r := w.record("", order{})
				r.Key, r.Value, r.Partition = key, value, 2
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "twice", Value: []byte("1")},
					kgo.RecordHeader{Key: "nil"}, kgo.RecordHeader{Key: "twice", Value: []byte{}},
					kgo.RecordHeader{Key: "\xff", Value: []byte("\x00\xff")}, kgo.RecordHeader{Key: markHeader, Value: []byte("3")})
				w.produce(r)
			}
		}
		m := w.start(w.stockSetup())
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 16, Dead: 16}, w.one())
	})

	// A group changes over, member by member, without a stop: a Source that is eager speaks the same protocol.
	t.Run("SharesItsGroupWithAnEagerSource", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		old := w.start(w.stockSetup())
		w.produce(w.orders(500, 300, order{})...)
		w.past(100)
		s := w.setup()
		s.Eager = true
		successor := w.start(s)
		w.eventually("it has its share", func() bool { return successor.ready() == nil })
		w.produce(w.orders(500, 300, order{})...)
		w.past(600)
		old.quit()
		w.produce(w.orders(500, 300, order{})...)
		w.drained()
		successor.quit()
		require.Equal(t, tally{Records: 1500, Effected: 1500}, w.one())
	})

	eachStore(t, "AStopIsInTimeAndLosesNothing", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		w.store = store
		s := w.stockSetup()
		s.DrainGrace = time.Second
		w.produce(w.orders(50, 50, order{Do: "slow", N: 300})...)
		m := w.start(s)
		w.past(2)
		began := time.Now()
		m.quit()
		require.Less(t, time.Since(began), 5*time.Second)
		m = w.start(s)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 50, Effected: 50}, w.one())
	})

	// Heartbeats go on beside the records that are held, for longer than a session, and nothing is dead for it.
	eachStore(t, "HoldsWhileTheDatabaseIsDown", func(t *testing.T, store dedup.Store) {
		w, proxy := proxied(t, 4)
		w.store = store
		s := w.stockSetup()
		s.Session = shortSession
		events, hooks := watched()
		w.produce(w.orders(600, 200, order{})...)
		m := w.run(s, hooks, s.scripted()...)
		w.past(300) // the members of both topics have joined, one after the other
		w.flows(m)
		for len(events.events) > 0 {
			<-events.events
		}
		proxy.Down()
		w.produce(w.orders(300, 200, order{})...)
		w.holds(m, "database")
		select {
		case e := <-events.events:
			require.FailNow(t, "a partition was "+e.Event)
		case <-time.After(2 * shortSession):
		}
		require.NoError(t, proxy.Accept())
		w.flows(m)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 900, Effected: 900}, w.one())
		w.noLetters()
	})

	eachStore(t, "BrokerKilledAndRestarted", func(t *testing.T, store dedup.Store) {
		cluster := kafkatest.Start(t, 1)
		w := newWorld(t, cluster.Brokers(), 4)
		w.store = store
		s := w.stockSetup()
		s.Session = shortSession
		w.produce(w.orders(2000, 200, order{Do: "slow", N: 1})...)
		m := w.start(s)
		w.past(200)
		cluster.Kill(t, 1)
		cluster.Restart(t, 1)
		w.produce(w.orders(200, 200, order{})...)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 2200, Effected: 2200}, w.one())
	})

	eachStore(t, "BrokerIsSilentForASession", func(t *testing.T, store dedup.Store) {
		cluster := kafkatest.Start(t, 1)
		w := newWorld(t, cluster.Brokers(), 2)
		w.store = store
		s := w.stockSetup()
		s.Session = shortSession
		silent := make(chan struct{}, 100)
		m := w.run(s, &record.Hooks{OnReport: func(r record.Report) {
			if r.Kind == "coordinator_silent" {
				silent <- struct{}{}
			}
		}}, s.scripted()...)
		w.produce(w.orders(1000, 200, order{Do: "slow", N: 1})...)
		w.past(100)
		cluster.Pause(t, 1)
		<-silent // Sarama itself has not noticed
		cluster.Resume(t, 1)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 1000, Effected: 1000}, w.one())
	})

	// The replay topic is another member of the group.
	eachStore(t, "ADeadLetterIsReplayed", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
		w.store = store
		s := w.stockSetup()
		var fixed atomic.Bool
		w.produce(w.orders(20, 20, order{})...)
		m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
			if e.Offset%2 == 0 && !fixed.Load() {
				return errors.New("not built yet")
			}
			return write(ctx, tx, "post", e)
		}))
		w.drained()
		dead := w.one().Dead
		require.Positive(t, dead)
		fixed.Store(true)
		for range 2 { // twice is harmless
			summary, err := dlq.Replay(t.Context(), dlq.ReplayConfig{Read: dlq.ReadConfig{
				Client: kafka.ClientConfig{Brokers: w.brokers}, Topic: w.deadLetters,
			}})
			require.NoError(t, err)
			require.EqualValues(t, dead, summary.Sent)
		}
		w.eventually("all have their effect", func() bool { return w.effected() == 20 })
		w.eventually("all replays are committed", func() bool {
			var n int64
			offsets, err := w.admin.FetchOffsets(t.Context(), w.group)
			require.NoError(t, err)
			offsets.Each(func(o kadm.OffsetResponse) {
				if o.Topic == dlq.ReplayTopic(w.topic, w.group) {
					n += o.At
				}
			})
			return n == int64(2*dead)
		})
		m.quit()
		require.Equal(t, 20, w.effected())
	})
}
