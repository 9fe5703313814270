package e2e

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// never is longer than a test takes.
const never = time.Hour

// settled are the records that a member was given and has settled, each once: however often its groups were cut, or a
// session that was too slow brought it a partition again, it is the same set. Safe for concurrent use.
type settled struct {
	mu sync.Mutex
	at map[place]bool
}

func (s *settled) hooks() *record.Hooks {
	s.at = map[place]bool{}
	return &record.Hooks{OnSettle: func(i record.SettleInfo) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.at[place{i.Partition, i.Offset}] = true
	}}
}

// split counts those before these offsets, and the others.
func (s *settled) split(ends map[int32]int64) (before, behind int) {
	for at := range s.at {
		if at.offset < ends[at.partition] {
			before++
		} else {
			behind++
		}
	}
	return before, behind
}

func TestOffsetStore(t *testing.T) {
	t.Parallel()

	// A process is killed before it has committed an offset, when everything is committed in the database. What the next
	// one is given again is what its inbox answers; the offset store knows where to begin.
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": impatient,
		"Real": func(t *testing.T) []string { return kafkatest.Real(t).Brokers() },
	} {
		eachStore(t, "AKillBringsBackNothingThatTheDatabaseHas/"+kind, func(t *testing.T, store dedup.Store) {
			w := newWorld(t, brokers(t), 4)
			w.store = store
			s := w.setup()
			s.Session, s.Commit = shortSession, never
			w.produce(w.orders(1000, 50, order{})...)
			p := w.spawn(s)
			w.past(999)
			w.eventually("the last COMMIT is answered", func() bool { return w.idle() })
			p.kill()
			require.Empty(t, w.committed())
			before := w.ends(w.topic)

			w.produce(w.orders(100, 50, order{})...)
			var met settled
			s.Commit = 0
			m := w.run(s, met.hooks(), s.scripted()...)
			w.drained()
			m.quit()
			require.Equal(t, tally{Records: 1100, Effected: 1100}, w.one())
			again, first := met.split(before)
			require.Equal(t, 100, first)
			require.Equal(t, map[dedup.Store]int{dedup.ByID: 1000, dedup.ByOffset: 0}[store], again, "records that came again")
		})
	}

	// Nothing comes after the kill, so no record moves the offset: it is committed all the same, or the group would seem to
	// lag for ever.
	t.Run("AKillOfAnIdleGroupLeavesNoLag", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, impatient(t), 2)
		w.store = dedup.ByOffset
		s := w.setup()
		s.Session, s.Commit = time.Second, never
		w.produce(w.orders(200, 20, order{})...)
		p := w.spawn(s)
		w.past(199)
		w.eventually("the last COMMIT is answered", func() bool { return w.idle() })
		p.kill()
		s.Commit = 0
		m := w.start(s)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 200, Effected: 200}, w.one())
	})

	// Members come and go faster than a rebalance lasts, as an autoscaler that cannot decide. The audit compares the order of
	// each key.
	eachStore(t, "AStormOfMembersKeepsEachKeyInOrder", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 8)
		w.store = store
		want := w.mixture(4000)
		stays := w.start(w.setup())
		w.past(50)
		for range 4 {
			var guests []*member
			for range 3 {
				guests = append(guests, w.start(w.setup()))
			}
			w.past(w.effected() + 50)
			for _, g := range guests {
				g.quit()
			}
		}
		w.drained()
		stays.quit()
		require.Equal(t, want, w.one())
	})

	// An inbox route of the same topic has rows, and nothing else that says where it is.
	t.Run("AnInboxRouteOfItsTopicIsReadFromTheCommittedOffset", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, impatient(t), 2)
		s := w.setup()
		byID, byOffset := s, s
		byID.Routes, byOffset.Routes, byOffset.Store = []string{"post"}, []string{"mail"}, dedup.ByOffset
		w.routes = []string{"post", "mail"}
		w.produce(w.orders(200, 20, order{})...)
		first := w.run(s, nil, append(byID.scripted(), byOffset.scripted()...)...)
		w.drained()
		first.quit()
		w.forget() // as if it had been killed before it committed
		var met answers
		second := w.run(s, met.hooks(), append(byID.scripted(), byOffset.scripted()...)...)
		w.drained()
		second.quit()
		require.EqualValues(t, 400, met.own.Load(), "either route knows what it has done")
		require.Zero(t, met.fresh.Load())
		require.Equal(t, 400, w.effected())
	})

	// The disk of the only replica is lost, and with it what was done. Its new records have the offsets of those, and would
	// pass for them.
	for name, more := range map[string]int{"IsShorterThanWhatIsDone": 50, "HasGrownBeyondWhatIsDone": 300} {
		t.Run("ALogThatWasLostAnd"+name+"IsHeldUntilSomebodyDecides", func(t *testing.T) {
			t.Parallel()
			lostLog(t, more)
		})
	}
}

func lostLog(t *testing.T, more int) {
	t.Helper()
	cluster := kafkatest.Start(t, 1)
	w := newWorld(t, cluster.Brokers(), 1)
	w.store = dedup.ByOffset
	w.produce(w.orders(200, 20, order{})...)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	cluster.Kill(t, 1)
	cluster.Lose(t, 1, w.topic, 0)
	cluster.Restart(t, 1)
	w.renewAdmin()
	w.produce(w.orders(more, 20, order{})...)

	told := &reports{}
	held := w.run(w.setup(), told.hooks(), w.setup().scripted()...)
	w.eventually("it is reported", func() bool { return len(told.of(record.ReportTruncated)) > 0 })
	require.ErrorContains(t, held.c.Ready(), record.ReportTruncated)
	require.Equal(t, 200, w.effected())
	held.quit()
	require.EqualValues(t, 200, w.committed()[0], "unchanged until somebody decides")

	_, err := w.pool.Exec(t.Context(), `delete from headrace.offsets`)
	require.NoError(t, err)
	w.forget()
	next := w.start(w.setup())
	w.past(200 + more - 1)
	next.quit()
	require.Equal(t, 200+more, w.effected())
}

// forget makes the group's offsets those of one that has committed nothing.
func (w *world) forget() {
	w.t.Helper()
	w.eventually("the group has nobody in it", func() bool {
		_, err := w.admin.DeleteOffsets(w.t.Context(), w.group, kadm.TopicsSet{w.topic: {0: {}, 1: {}, 2: {}, 3: {}}})
		return err == nil
	})
}

// idle says whether no member has a transaction open.
func (w *world) idle() bool {
	w.t.Helper()
	var open int
	err := w.pool.QueryRow(w.t.Context(), `select count(*) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null`).Scan(&open)
	return err == nil && open == 0
}

// reports are those of a member. Safe for concurrent use.
type reports struct {
	mu  sync.Mutex
	all []record.Report
}

func (rs *reports) hooks() *record.Hooks {
	return &record.Hooks{OnReport: func(r record.Report) {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		rs.all = append(rs.all, r)
	}}
}

func (rs *reports) of(kind string) []record.Report {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(rs.all), func(r record.Report) bool { return r.Kind != kind })
}
