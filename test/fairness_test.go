package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// tries are the failed attempts of a member, by their number. Safe for concurrent use.
type tries struct {
	mu sync.Mutex
	by map[int]int
}

func (a *tries) hooks() *record.Hooks {
	a.by = map[int]int{}
	return &record.Hooks{OnAttempt: func(i record.AttemptInfo) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if i.Class == fault.ClassTransient.String() {
			a.by[i.Attempt]++
		}
	}}
}

func (a *tries) seen() map[int]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.by)
}

// patient lets whoever comes again for later do so within its budget.
func patient(o *consumer.Options) { o.BackoffBase, o.BackoffCap = later, later }

// TestFairness: keys and partitions that are well do not wait for those that are not. What it compares is who is done
// before whom; the times are measured by the benchmarks failing and stuck.
func TestFairness(t *testing.T) {
	t.Parallel()

	// A fifth of the keys fails for ever, in each of two partitions that have more records than may be in flight. All others
	// are done between the first attempt of those and the second.
	eachWay(t, "AFifthOfTheKeysFailsForEver", func(t *testing.T, as way) {
		const n, keys = 8000, 100
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		w.way = as
		rs := w.orders(n, keys, order{})
		for i := range rs {
			if i%keys%5 == 0 {
				rs[i].Value = []byte(`{"do":"later"}`)
			}
		}
		w.produce(rs...)
		s := w.setup()
		patient(&s.Options)
		s.Options.MaxBatch = 500
		s.Tune = func(c *consumer.Config) { c.MaxInFlight = n / 4 }
		var failed tries
		m := w.run(s, failed.hooks(), s.scripted()...)
		w.eventually("the healthy ones are done", func() bool { return w.effected() == n*4/5 })
		w.eventually("each head has failed", func() bool { return failed.seen()[1] >= keys/5 })
		require.Len(t, failed.seen(), 1, "nobody has been tried twice")
		if as.kind != batches { // whose handler names those behind a head too, if they come in its first group
			require.Equal(t, keys/5, failed.seen()[1], "one attempt of each head, none of its followers")
		}
		require.NoError(t, m.ready(), "nobody holds")
		m.quit()
		w.noLetters()

		w.repair("post")
		next := w.start(w.setup())
		w.drained()
		next.quit()
		require.Equal(t, tally{Records: n, Effected: n}, w.one())
	})

	// The handlers of one key hang until their deadline. Those that share its first transaction wait for that, and nobody
	// waits for its next attempt, although more is behind it than may be in flight.
	eachStore(t, "AKeyWhoseHandlersHang", func(t *testing.T, store dedup.Store) {
		const n, keys = 4000, 100
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.store = store
		w.produce(w.orders(n, keys, order{})...)
		s := w.setup()
		patient(&s.Options)
		s.Options.AttemptTimeout = 2 * time.Second
		s.Tune = func(c *consumer.Config) { c.MaxInFlight = n / 8 }
		var failed tries
		m := w.run(s, failed.hooks(), s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
			if string(e.Key) != "key-7" {
				return act(ctx, tx, "post", e)
			}
			<-ctx.Done()
			return fault.RetryAfter(fmt.Errorf("no answer: %w", ctx.Err()), later)
		}))
		w.eventually("the healthy ones are done", func() bool { return w.effected() == n-n/keys })
		require.Equal(t, map[int]int{1: 1}, failed.seen())
		m.quit()
		w.noLetters()

		next := w.start(w.setup())
		w.drained()
		next.quit()
		require.Equal(t, tally{Records: n, Effected: n}, w.one())
	})

	// What comes to one partition is not behind what has piled up in the other.
	eachWay(t, "ASmallPartitionBesideABacklog", func(t *testing.T, as way) {
		const backlog, few = 6000, 20
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		w.way = as
		s := w.setup()
		s.Options.MaxBatch = 50
		w.produce(w.onPartition(0, backlog, order{Do: "slow", N: 1})...)
		m := w.start(s)
		w.past(100)
		w.produce(w.onPartition(1, few, order{})...)
		w.eventually("the small one is done", func() bool { return w.effectedIn(1) == few })
		require.Less(t, w.effectedIn(0), backlog/2, "it was done long before the backlog")
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: backlog + few, Effected: backlog + few}, w.one())
	})
}

// onPartition are n records of a partition that depend on nobody.
func (w *world) onPartition(partition int32, n int, o order) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = w.record("", o)
		rs[i].Partition = partition
	}
	return rs
}

func (w *world) effectedIn(partition int32) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `select count(*) from effects where part = $1`, partition).Scan(&n))
	return n
}
