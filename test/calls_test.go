package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// callSetup is of a member whose breaker is quick to open and to probe, and whose back-offs are short.
func (w *world) callSetup() setup {
	s := w.setup()
	s.Caller.OpenFor = 200 * time.Millisecond
	s.Options.BackoffBase, s.Options.BackoffCap = 10*time.Millisecond, 100*time.Millisecond
	return s
}

// asks waits until an outage has answered n more requests.
func (w *world) asks(n int) {
	w.t.Helper()
	n += w.payments.turnedAway()
	w.eventually("the service is asked", func() bool { return w.payments.turnedAway() >= n })
}

// TestOpenBreaker: stock Watermill's CircuitBreaker fails at once what it does not let through, and its PoisonQueue takes
// that: 1,000 of 1,000 healthy records are dead after an outage of a second.
func TestOpenBreaker(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		partitions int
		order      kafka.Order
	}{
		"ByKey":       {8, kafka.ByKey},
		"ByPartition": {1, kafka.ByPartition}, // one record at a time: the breaker sees little
	} {
		// Down from the start, until ten probes have found it so: five seconds at least.
		eachStore(t, "DeadLettersNobody/"+name, func(t *testing.T, store dedup.Store) {
			w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), c.partitions)
			w.store = store
			p := w.pays()
			s := w.callSetup()
			s.Options.Order, s.Caller.OpenFor = c.order, 500*time.Millisecond
			p.down(unavailable)
			w.produce(w.orders(1000, 200, order{})...)
			seen, hooks := w.listen()
			m := w.run(s, hooks, s.scripted()...)
			seen.opens()
			w.asks(10)
			require.Zero(t, w.effected())
			w.noLetters()
			p.up()
			w.drained()
			w.flows(m)
			m.quit()
			require.Equal(t, tally{Records: 1000, Effected: 1000}, w.one())
			require.Equal(t, 1, w.attempts(), "an outage is nobody's attempt")
		})
	}

	// The records come one at a time, each after three more calls have failed. The first ones have failed more often than
	// they have attempts before the breaker has seen enough to open.
	eachStore(t, "DeadLettersNobody/AtALowRate", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		p.down(unavailable)
		m := w.run(s, nil, s.scripted()...)
		for range 8 {
			w.produce(w.record("", order{}))
			w.asks(3)
		}
		w.eventually("one has failed more often than it may", func() bool { return p.most() > 3 })
		w.noLetters()
		p.up()
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 8, Effected: 8}, w.one())
		require.Equal(t, 1, w.attempts())
	})

	// Twice under load: answers and failures mix at each edge, and each edge may cost a record one of its attempts.
	eachStore(t, "ClosesAndOpensUnderLoad", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 4)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		w.produce(w.orders(3000, 300, order{})...)
		w.produce(w.orders(10, 10, order{Ask: "answer", N: http.StatusPaymentRequired})...)
		seen, hooks := w.listen()
		m := w.run(s, hooks, s.scripted()...)
		for range 2 {
			w.past(w.effected() + 200)
			p.down(unavailable)
			seen.opens()
			w.asks(5)
			p.up()
		}
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 3010, Effected: 3000, Dead: 10}, w.one())
		require.Equal(t, map[string]int{"permanent": 10}, w.reasons("post"))
	})

	// Case 38.
	t.Run("HasABacklogBehindIt", func(t *testing.T) {
		t.Parallel()
		const n = 20_000
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 4)
		p := w.pays()
		s := w.callSetup()
		s.Options.MaxBatch = 50
		p.down(unavailable)
		w.produce(w.orders(100, 100, order{})...)
		seen, hooks := w.listen()
		m := w.run(s, hooks, s.scripted()...)
		seen.opens()
		w.asks(2) // whatever was under way then has come back
		p.watch()
		backlog := w.orders(n, 1000, order{})
		for _, r := range backlog { // a fetch is a MiB of a partition, about 1,000 of these
			r.Value = fmt.Appendf(nil, `{"pad":"%x"}`, noise(t, 1000))
		}
		w.produce(backlog...)
		w.asks(6)
		require.Equal(t, 1, p.watched(), "one probe at a time")
		require.Zero(t, w.effected())
		for partition, offset := range w.committed() {
			require.LessOrEqual(t, offset, int64(0), "partition %d", partition)
		}
		w.noLetters()
		inFlight := m.metric("headrace_in_flight_records")
		require.Positive(t, inFlight)
		require.LessOrEqual(t, inFlight, 4*(20*50+1500.0), "the backlog waits in Kafka")
		const lanes = 2
		require.LessOrEqual(t, m.metric("headrace_holding"), 4*2*lanes*50.0, "and in line, but for what was to supply a probe: it is offered to all lanes")
		p.up()
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: n + 100, Effected: n + 100}, w.one())
		require.Equal(t, 1, w.attempts())
		require.LessOrEqual(t, len(p.asked), n+100)
		require.Less(t, p.all()-p.turnedAway(), (n+100)*11/10, "a herd after the outage")
	})
}

// TestBreakerStaysClosed is about what is not the dependency's fault.
func TestBreakerStaysClosed(t *testing.T) {
	t.Parallel()

	// Case 39. Two calls in a row that failed would open this breaker.
	eachStore(t, "ForRefusalsBusinessErrorsAndBusy", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 4)
		w.store = store
		w.pays()
		s := w.callSetup()
		s.Caller.MinRequests = 2
		statuses := []int{400, 402, 403, 404, 405, 410, 411, 413, 415, 418, 451}
		for _, status := range statuses {
			w.produce(w.orders(10, 10, order{Ask: "answer", N: status})...)
		}
		w.produce(w.orders(10, 10, order{Ask: "answer", N: http.StatusUnprocessableEntity})...)
		w.produce(w.orders(20, 20, order{Ask: "busy", N: 2})...)
		w.produce(w.orders(20, 20, order{Do: "skip"})...)
		w.produce(w.orders(20, 20, order{Do: "fail"})...)
		seen, hooks := w.listen()
		m := w.run(s, hooks, s.scripted()...)
		w.drained()
		m.quit()
		require.Empty(t, seen.breaker)
		dead := len(statuses)*10 + 10 + 20
		require.Equal(t, tally{Records: dead + 40, Effected: 20, Skipped: 20, Dead: dead}, w.one())
		require.Equal(t, 1, w.attempts(), "busy is free of charge")
		require.Equal(t, map[string]int{"permanent": len(statuses)*10 + 20, "unknown_outcome": 10}, w.reasons("post"))
	})

	// Case 40: every rebalance cancels the calls of all partitions, for the members are eager and have no time to drain.
	eachStore(t, "ForCallsCancelledByARebalanceStorm", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 8)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		s.Eager = true
		s.Caller.MinRequests, s.Caller.Timeout = 2, 30*time.Second
		s.DrainGrace = 100 * time.Millisecond
		w.produce(w.orders(400, 400, order{Ask: "held"})...)
		seen, hooks := w.listen()
		stays := w.run(s, hooks, s.scripted()...)
		for range 3 {
			w.eventually("calls are out", func() bool { return p.present() > 0 })
			before := seen.outcomes()[record.CallCancelled]
			guest := w.run(s, hooks, s.scripted()...)
			w.eventually("they have been cancelled", func() bool { return seen.outcomes()[record.CallCancelled] > before+8 })
			guest.quit()
		}
		p.letGo()
		w.drained()
		stays.quit()
		ended := seen.outcomes()
		require.Empty(t, seen.breaker, "%v", ended)
		require.Greater(t, ended[record.CallCancelled], 20)
		require.Zero(t, ended[record.CallFailed], "%v", ended)
		require.Equal(t, tally{Records: 400, Effected: 400}, w.one())
		require.Equal(t, 1, w.attempts())
	})
}

// TestHungProbe: gobreaker waits for its probe for ever.
func TestHungProbe(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ ignores bool }{
		"OfACallThatHeedsItsContext":   {false},
		"OfACallThatIgnoresItsContext": {true},
	} {
		eachStore(t, name, func(t *testing.T, store dedup.Store) {
			w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
			w.store = store
			p := w.pays()
			s := w.callSetup()
			s.Caller.Timeout = 300 * time.Millisecond
			s.Tune = func(c *consumer.Config) { c.HardGrace = 300 * time.Millisecond }
			var hangs, hung atomic.Bool
			never := make(chan struct{})
			t.Cleanup(func() { close(never) })
			d := s.Caller.dependency()
			ask := s.Caller.charges(s.Caller.client(d))
			route := s.charging("post", d, func(ctx context.Context, e consumer.Event[order]) (receipt, error) {
				if !hangs.Load() || !hung.CompareAndSwap(false, true) {
					return ask(ctx, e)
				}
				over := ctx.Done()
				if c.ignores {
					over = nil
				}
				select {
				case <-over:
				case <-never:
				}
				return receipt{}, ctx.Err()
			})
			p.down(unavailable)
			w.produce(w.orders(100, 50, order{})...)
			seen, hooks := w.listen()
			m := w.run(s, hooks, route)
			seen.opens()
			hangs.Store(true)
			w.eventually("a probe hangs", hung.Load)
			w.asks(3) // others have come after it
			p.up()
			w.drained()
			m.quit()
			require.Equal(t, tally{Records: 100, Effected: 100}, w.one())
			require.Equal(t, 1, w.attempts())
		})
	}
}

// TestRetryAfter: stock Watermill's Retry middleware and most HTTP clients wait for what they are told.
func TestRetryAfter(t *testing.T) {
	t.Parallel()

	for name, value := range map[string]string{
		"AYear":          "31536000",
		"ADateAYearAway": time.Now().Add(365 * 24 * time.Hour).UTC().Format(http.TimeFormat),
		"ForEver":        "99999999999999999999",
		"Negative":       "-31536000",
		"APastDate":      "Mon, 01 Jan 2001 00:00:00 GMT",
		"Garbage":        "soon; maybe",
		"Empty":          "",
	} {
		// Two keys: the breaker does not see enough to open before each head has failed more often than it may.
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
			p := w.pays()
			s := w.callSetup()
			s.Tune = func(c *consumer.Config) { c.MaxHold = 300 * time.Millisecond }
			var n atomic.Int64
			p.down(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", value)
				w.WriteHeader([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests}[n.Add(1)%2])
			})
			w.produce(w.orders(10, 2, order{})...)
			m := w.run(s, nil, s.scripted()...)
			w.eventually("a record has failed too often", func() bool { return p.most() > 3 })
			w.noLetters()
			p.up()
			w.drained()
			m.quit()
			require.Equal(t, tally{Records: 10, Effected: 10}, w.one())
			require.Equal(t, 1, w.attempts())
		})
	}
}
