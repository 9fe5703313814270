package e2e

import (
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// holds says whether the member's readiness names what it waits for.
func (w *world) holds(m *member, dependency string) {
	w.t.Helper()
	w.eventually("the member holds for "+dependency, func() bool {
		err := m.ready()
		return err != nil && contains(err.Error(), dependency)
	})
	require.NoError(w.t, m.c.Live(), "a hold is no reason to be restarted")
}

// flows waits until the member is ready again.
func (w *world) flows(m *member) {
	w.t.Helper()
	w.eventually("the member is ready", func() bool { return m.ready() == nil })
}

func TestDatabase(t *testing.T) {
	t.Parallel()

	// The server of this test alone is killed with SIGKILL in mid-flight, twice, and comes back on its data.
	eachWay(t, "KilledAndStartedAgain", func(t *testing.T, as way) {
		server := pgtest.Server(t, embedded.Config{})
		prepared(t, server.DSN())
		w := newWorldOn(t, kafkatest.Real(t).Brokers(), server.DSN(), 4)
		w.way = as
		w.produce(w.orders(4000, 200, order{})...)
		m := w.start(w.setup())
		for range 2 {
			w.past(w.effected() + 200)
			require.NoError(t, server.Kill())
			w.produce(w.orders(500, 200, order{})...)
			w.holds(m, "database")
			require.NoError(t, server.Start(t.Context()))
			w.pool.Reset() // the auditor's own connections died too
			w.flows(m)
		}
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 5000, Effected: 5000}, w.one())
		w.noLetters()
	})

	eachWay(t, "RefusesAndCutsConnections", func(t *testing.T, as way) {
		w, proxy := proxied(t, 4)
		w.way = as
		w.produce(w.orders(4000, 200, order{})...)
		m := w.start(w.setup())
		for range 5 {
			w.past(w.effected() + 100)
			proxy.CutAll()
		}
		w.past(w.effected() + 100)
		proxy.Down()
		w.produce(w.orders(300, 200, order{})...)
		w.produce(w.orders(5, 5, order{Do: "fail"})...) // they die when it is back
		w.holds(m, "database")
		require.NoError(t, proxy.Accept())
		w.flows(m)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 4305, Effected: 4300, Dead: 5}, w.one())
	})

	// The transaction is durable and the member cannot know: every third COMMIT is answered by a reset connection.
	eachWay(t, "ForgetsToAnswerCOMMIT", func(t *testing.T, as way) {
		w, proxy := proxied(t, 4)
		w.way = as
		var n atomic.Int64
		third := func(r pgtest.Request) bool { return pgtest.Commit(r) && n.Add(1)%3 == 0 }
		stop := proxy.Always(third, pgtest.CutReply)
		w.produce(w.orders(1500, 100, order{})...)
		w.produce(w.orders(5, 5, order{Do: "fail"})...)
		w.produce(w.orders(5, 5, order{Do: "skip"})...)
		m := w.start(w.setup())
		w.past(1000)
		stop()
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 1510, Effected: 1500, Dead: 5, Skipped: 5}, w.one())
		require.Positive(t, n.Load()/3)
	})

	// As a COMMIT that never arrived: the connection is cut before it.
	eachWay(t, "IsCutOffBeforeCOMMIT", func(t *testing.T, as way) {
		w, proxy := proxied(t, 2)
		w.way = as
		var n atomic.Int64
		third := func(r pgtest.Request) bool { return pgtest.Commit(r) && n.Add(1)%3 == 0 }
		stop := proxy.Always(third, pgtest.CutBefore)
		w.produce(w.orders(1000, 100, order{})...)
		m := w.start(w.setup())
		w.past(700)
		stop()
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 1000, Effected: 1000}, w.one())
		w.noLetters()
	})

	// A restart by an administrator, a failover: every session gets 57P01, in mid-statement too.
	eachWay(t, "TerminatesEverySession", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 4)
		w.way = as
		w.produce(w.orders(1500, 100, order{Do: "slow", N: 1})...)
		m := w.start(w.setup())
		for range 4 {
			w.past(w.effected() + 50)
			require.Positive(t, pgtest.Terminate(t, w.pool))
			w.pool.Reset() // the auditor's own are gone too
		}
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 1500, Effected: 1500}, w.one())
		w.noLetters()
	})

	t.Run("IsAwayAtTheStart", func(t *testing.T) {
		t.Parallel()
		w, proxy := proxied(t, 1)
		proxy.Down()
		m := w.start(w.setup())
		var start *consumer.StartError
		require.ErrorAs(t, m.ended(), &start)
		require.ErrorContains(t, start, "the database cannot be reached")
	})
}

// prepared brings a server of one test to the schema that a world wants.
func prepared(t *testing.T, dsn string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, migrations.Up(t.Context(), pool))
	require.NoError(t, effectsTable(t.Context(), pool))
}

// proxied is a world whose members reach their database through a proxy; the auditor does not.
func proxied(t *testing.T, partitions int) (*world, *pgtest.Proxy) {
	t.Helper()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), partitions)
	proxy := pgtest.NewProxy(t, w.dsn)
	w.dsn = proxy.DSN()
	return w, proxy
}
