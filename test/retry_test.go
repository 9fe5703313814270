package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
)

func TestRetry(t *testing.T) {
	t.Parallel()

	eachWay(t, "FlakyRecordsOfOneKeyInARow", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.way = as
		w.produce(w.orders(6, 1, order{Do: "flaky", N: 1})...)
		w.produce(w.orders(6, 1, order{Do: "flaky", N: 2})...)
		w.produce(w.orders(6, 1, order{})...)
		m := w.start(w.setup())
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 18, Effected: 18}, w.one())
	})

	// Attempts belong to the record, whatever its errors are of.
	eachStore(t, "ErrorsThatAlternateSpendOneBudget", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.store = store
		s := w.setup()
		s.Options.Attempts = 4
		var attempts atomic.Int64
		m := w.run(s, nil, s.route("post", func(context.Context, pgx.Tx, consumer.Event[order]) error {
			if attempts.Add(1)%2 == 0 {
				return fault.Transient(errors.New("a"))
			}
			return fault.RetryAfter(fmt.Errorf("b: %w", context.DeadlineExceeded), time.Millisecond)
		}))
		w.produce(w.record("a", order{}))
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 1, Dead: 1}, w.one())
		require.EqualValues(t, 4, attempts.Load())
		for _, letters := range w.readLetters()["post"] {
			require.Equal(t, "4", letters[0].fields["headrace-attempts"])
		}
	})

	// Other partitions and keys succeed all the time; that says nothing about this record.
	eachStore(t, "SuccessElsewhereResetsNoAttempts", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 4)
		w.store = store
		s := w.setup()
		counts, route := w.counted(s)
		bad := w.orders(8, 8, order{Do: "flaky", N: 1000})
		w.produce(bad...)
		w.produce(w.orders(400, 100, order{Do: "slow", N: 1})...)
		m := w.run(s, nil, route)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 408, Effected: 400, Dead: 8}, w.one())
		for _, letters := range w.readLetters()["post"] {
			require.Equal(t, "3", letters[0].fields["headrace-attempts"])
		}
		require.GreaterOrEqual(t, counts.count(placeOf(bad[0])), 3)
	})

	// A year, a negative time, one that is over: held, not dead, and no longer than MaxHold.
	eachStore(t, "RetryAfterAYearIsNotDead", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.store = store
		s := w.setup()
		s.Tune = func(c *consumer.Config) { c.MaxHold = time.Second }
		var asked atomic.Int64
		m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
			if e.Data.N != 0 && asked.Add(1) <= 2 {
				return fault.RetryAfter(errors.New("maintenance"), time.Duration(e.Data.N)*365*24*time.Hour)
			}
			return act(ctx, tx, "post", e)
		}))
		w.produce(w.record("a", order{N: 1}))
		w.drained()
		asked.Store(0)
		w.produce(w.record("a", order{N: -1}))
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 2, Effected: 2}, w.one())
	})

	for _, n := range []int{1, 2, 10, 500} {
		// Poison in a row on one partition, with records behind it.
		eachWay(t, fmt.Sprintf("PoisonInARow/%d", n), func(t *testing.T, as way) {
			w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
			w.way = as
			w.produce(w.orders(n, 7, order{Do: "fail"})...)
			w.produce(w.orders(50, 7, order{})...)
			m := w.start(w.setup())
			w.drained()
			m.quit()
			require.Equal(t, tally{Records: n + 50, Effected: 50, Dead: n}, w.one())
		})
	}

	// A whole fetch of garbage, without a key: nothing waits for anything.
	eachWay(t, "NothingButGarbage", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.way = as
		rs := w.orders(2000, 1, order{})
		for _, r := range rs {
			r.Key, r.Value = nil, []byte("\xff")
		}
		w.produce(rs...)
		m := w.start(w.setup())
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 2000, Dead: 2000}, w.one())
		require.NoError(t, m.c.Live())
	})
}
