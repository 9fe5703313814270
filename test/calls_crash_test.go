package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
)

// impatient is a broker that notices a second after its end that a member was killed.
func impatient(t *testing.T) []string {
	t.Helper()
	return kafkatest.Fake(t, kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "100"})).ListenAddrs()
}

// TestCallCrash is about what only the payment service and the database remember.
func TestCallCrash(t *testing.T) {
	t.Parallel()

	// Charged, and nobody hears of it: the process is gone before the answer, and then again.
	eachStore(t, "BetweenTheChargeAndItsAnswer", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, impatient(t), 4)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		s.Session = time.Second
		w.produce(w.perPartition(4, order{Ask: "held"})...)
		w.produce(w.orders(200, 100, order{})...)
		for range 2 {
			made := p.holding()
			victim := w.spawn(s)
			w.eventually("all four are charged", func() bool { return p.holding() >= made+4 })
			victim.kill()
		}
		p.letGo()
		last := w.spawn(s)
		w.drained()
		last.quit()
		require.Equal(t, tally{Records: 204, Effected: 204}, w.one())
		require.Len(t, p.charges, 204)
	})

	// Charged and answered, and the transaction never commits.
	eachStore(t, "BetweenTheAnswerAndTheCommit", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, impatient(t), 4)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		s.Session = time.Second
		slow := w.perPartition(4, order{Do: "slow", N: 2000})
		w.produce(slow...)
		w.produce(w.orders(100, 100, order{})...)
		victim := w.spawn(s)
		w.eventually("the handler of one of them is in its transaction", func() bool {
			var n int
			require.NoError(t, w.pool.QueryRow(t.Context(),
				`select count(*) from pg_stat_activity where datname = current_database() and query like '%pg_sleep%' and pid <> pg_backend_pid()`).Scan(&n))
			return n > 0
		})
		victim.kill()
		last := w.spawn(s)
		w.drained()
		last.quit()
		require.Equal(t, tally{Records: 104, Effected: 104}, w.one())
		require.Greater(t, p.most(), 1, "it was asked for again")
	})

	// Wherever it is, under load, three times.
	eachStore(t, "ThreeTimesInMidFlight", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.store = store
		w.pays()
		s := w.callSetup()
		s.Session = shortSession
		w.produce(w.orders(3000, 300, order{})...)
		w.produce(w.orders(30, 30, order{Ask: "lost"})...)
		w.produce(w.orders(10, 10, order{Ask: "answer", N: 402})...)
		w.produce(w.orders(1000, 300, order{})...)
		for range 3 {
			victim := w.spawn(s)
			w.past(w.effected() + 100)
			victim.kill()
		}
		last := w.spawn(s)
		w.drained()
		last.quit()
		require.Equal(t, tally{Records: 4040, Effected: 4030, Dead: 10}, w.one())
	})

	// The breaker, its probes and its holds are in memory; what they stood for is in the topic.
	eachStore(t, "WhileTheBreakerIsOpen", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, impatient(t), 4)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		s.Session = time.Second
		w.produce(w.orders(1000, 100, order{})...)
		p.down(unavailable)
		for range 3 {
			victim := w.spawn(s)
			w.asks(20 + 3) // what a breaker of a new process sees before it opens, and probes
			victim.kill()
		}
		w.noLetters()
		last := w.spawn(s)
		w.asks(20 + 3)
		p.up()
		w.drained()
		last.quit()
		require.Equal(t, tally{Records: 1000, Effected: 1000}, w.one())
		require.Equal(t, 1, w.attempts())
	})
}

// TestCallRebalance: partitions move while calls are out, and while they are held.
func TestCallRebalance(t *testing.T) {
	t.Parallel()

	// A call on each partition is out when another member joins. The partitions that stay go on beside it; on those that
	// move, it may finish first. Nobody is asked twice.
	eachStore(t, "KeptPartitionsGoOnBesideTheCallsThatAreOut", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		s.Caller.Timeout = 30 * time.Second
		s.Tune = func(c *consumer.Config) { c.DrainGrace = 30 * time.Second }
		w.produce(w.perPartition(4, order{Ask: "held"})...)
		stays := w.start(s)
		w.eventually("a call is out on each partition", func() bool { return p.holding() == 4 })
		guest := w.start(s)
		for range 10 {
			w.produce(w.perPartition(4, order{})...)
		}
		w.past(19) // two of the four partitions at least go on beside their call that is out
		p.letGo()
		w.drained()
		w.flows(guest)
		stays.quit()
		guest.quit()
		require.Equal(t, tally{Records: 44, Effected: 44}, w.one())
		require.Empty(t, p.again(), "asked once each")
	})

	// They do not finish in time: they are cancelled, and made again with the same key by whoever has the partition.
	eachStore(t, "MakesAgainWhatWasCutOff", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 4)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		s.DrainGrace, s.Caller.Timeout = 200*time.Millisecond, 30*time.Second
		w.produce(w.perPartition(4, order{Ask: "held"})...)
		first := w.start(s)
		w.eventually("a call is out on each partition", func() bool { return p.holding() == 4 })
		second := w.start(s)
		w.eventually("two have moved and are made again", func() bool { return p.holding() == 6 })
		p.letGo()
		w.produce(w.orders(100, 50, order{})...)
		w.drained()
		first.quit()
		second.quit()
		require.Equal(t, tally{Records: 104, Effected: 104}, w.one())
		require.Equal(t, 2, p.most())
	})

	// Both members find the service down; partitions move to and fro between them, held as they are.
	eachStore(t, "MovesWhatIsHeld", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		p.down(unavailable)
		w.produce(w.orders(1000, 200, order{})...)
		first := w.start(s)
		w.holds(first, "payments")
		second := w.start(s)
		w.holds(second, "payments")
		w.holds(first, "payments")
		first.quit()
		w.asks(10)
		third := w.start(s)
		w.holds(third, "payments")
		w.noLetters()
		p.up()
		w.drained()
		w.flows(second)
		w.flows(third)
		second.quit()
		third.quit()
		require.Equal(t, tally{Records: 1000, Effected: 1000}, w.one())
		require.Equal(t, 1, w.attempts())
	})
}
