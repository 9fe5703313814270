package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
)

// shortSession is the shortest that a broker allows by default.
const shortSession = 6 * time.Second

func TestCrash(t *testing.T) {
	t.Parallel()

	eachWay(t, "KilledAgainAndAgainInMidFlight", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.way = as
		w.produce(w.orders(6000, 300, order{Do: "slow", N: 1})...) // or whole groups are done before anybody can be killed
		w.produce(w.orders(20, 20, order{Do: "fail"})...)
		w.produce(w.orders(20, 20, order{Do: "flaky", N: 1})...)
		w.produce(w.orders(1000, 300, order{})...)
		s := w.setup()
		s.Session = shortSession // a killed member holds its partitions for so long
		times := map[kind]int{applies: 5, queues: 2, batches: 2}
		for range times[as.kind] {
			p := w.spawn(s)
			w.past(w.effected() + 100)
			p.kill()
		}
		last := w.spawn(s)
		w.drained()
		last.quit()
		require.Equal(t, map[string]int{"permanent": 20}, w.reasons("post"), "a death is no fault of whoever ran then")
		require.Equal(t, tally{Records: 7040, Effected: 7020, Dead: 20}, w.one())
	})

	// Two members, one of which is killed; the other goes on with what it left.
	eachWay(t, "TheOtherMemberGoesOn", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.way = as
		s := w.setup()
		s.Session = shortSession
		victim, heir := w.spawn(s), w.spawn(s)
		w.produce(w.orders(3000, 300, order{})...)
		w.past(200)
		victim.kill()
		w.drained()
		heir.quit()
		require.Equal(t, tally{Records: 3000, Effected: 3000}, w.one())
	})
}

func TestZombie(t *testing.T) {
	t.Parallel()

	// The process is stopped with transactions open -> its session times out, another member takes its partitions, and
	// Postgres frees the rows -> the process runs again and knows nothing of it.
	eachWay(t, "WakesUpAndHasNoSecondEffect", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
		w.way = as
		s := w.setup()
		s.Session = shortSession
		zombie := w.spawn(s)
		w.produce(w.orders(2000, 100, order{Do: "slow", N: 2})...)
		w.past(50)
		zombie.signal(syscall.SIGSTOP)
		heir := w.spawn(s)
		w.past(w.effected() + 300) // the heir has the partitions
		zombie.signal(syscall.SIGCONT)
		w.produce(w.orders(500, 100, order{})...)
		w.drained()
		zombie.quit()
		heir.quit()
		require.Equal(t, tally{Records: 2500, Effected: 2500}, w.one())
	})
}
