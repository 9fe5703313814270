package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
)

func TestRebalance(t *testing.T) {
	t.Parallel()

	// The first member cannot reach its database. Another joins that can: it takes its half and finishes it, while the
	// first holds the other half, is asked for nothing else, and goes on when it may.
	eachStore(t, "AHoldStaysWithThePartitionThatStays", func(t *testing.T, store dedup.Store) {
		w, proxy := proxied(t, 4)
		w.store = store
		near := w.setup()
		near.DSN = w.pool.Config().ConnString()
		first := w.start(w.setup())
		w.flows(first)
		proxy.Down()
		w.produce(w.orders(400, 100, order{})...)
		w.holds(first, "database")
		second := w.start(near)
		w.past(100)
		w.holds(first, "database")
		require.Less(t, w.effected(), 400)
		require.NoError(t, proxy.Accept())
		w.drained()
		w.flows(first)
		second.quit() // its half comes back, and no old hold with it
		w.produce(w.orders(100, 100, order{})...)
		w.drained()
		first.quit()
		require.Equal(t, tally{Records: 500, Effected: 500}, w.one())
		w.noLetters()
	})

	for name, eager := range map[string]bool{"Cooperative": false, "Eager": true} {
		// Members of this process and one of another come and go while records run, fail, wait and die.
		eachWay(t, name+"MembersComeAndGoUnderLoad", func(t *testing.T, as way) {
			w := newWorld(t, kafkatest.Real(t).Brokers(), 6)
			w.way = as
			s := w.setup()
			s.Eager, s.Session = eager, shortSession
			want := w.mixture(4000)
			first := w.start(s)
			w.past(100)
			second := w.start(s)
			w.past(w.effected() + 100)
			third := w.spawn(s)
			w.past(w.effected() + 100)
			first.quit()
			w.past(w.effected() + 100)
			second.quit()
			fourth := w.start(s)
			w.past(w.effected() + 100)
			third.quit()
			w.drained()
			fourth.quit()
			require.Equal(t, want, w.one())
		})
	}
}

// mixture produces n records, a few of each hundred of which are slow, skip, need a second attempt or die.
func (w *world) mixture(n int) tally {
	w.t.Helper()
	rs := w.orders(n, 200, order{Do: "slow", N: 1})
	sum := tally{Records: n, Effected: n}
	for i := range rs {
		switch i % 100 {
		case 20:
			rs[i].Value = []byte(`{"do":"skip"}`)
			sum.Skipped++
			sum.Effected--
		case 40:
			rs[i].Value = []byte(`{"do":"flaky","n":1}`)
		case 60:
			rs[i].Value = []byte(`{"do":"fail"}`)
			sum.Dead++
			sum.Effected--
		case 80:
			rs[i].Value = []byte(`not json`)
			sum.Dead++
			sum.Effected--
		}
	}
	w.produce(rs...)
	return sum
}
