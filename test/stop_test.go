package e2e

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// answers count what the inbox said, by answer. Safe for concurrent use.
type answers struct{ own, fresh atomic.Int64 }

func (a *answers) hooks() *record.Hooks {
	return &record.Hooks{OnInbox: func(i record.InboxInfo) {
		switch i.Answer {
		case "own":
			a.own.Add(int64(i.Records))
		case "fresh":
			a.fresh.Add(int64(i.Records))
		}
	}}
}

func TestStop(t *testing.T) {
	t.Parallel()

	// Members are stopped in full flow, three times. What they finished is committed, and nothing of it is met again but
	// what stands behind a record that was not finished: an offset cannot pass that one.
	eachWay(t, "UnderLoadCommitsWhatIsFinished", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.way = as
		want := w.mixture(4000)
		s := w.setup()
		var met answers
		behind, perhaps := 0, 0
		for range 3 {
			m := w.run(s, met.hooks(), s.scripted()...)
			w.past(w.effected() + 100)
			began := time.Now()
			m.quit()
			require.Less(t, time.Since(began), 30*time.Second, "10 s drain + 5 s hard grace + commit")
			effects, skips := w.noGap()
			behind, perhaps = behind+effects, perhaps+skips
		}
		m := w.run(s, met.hooks(), s.scripted()...)
		w.drained()
		m.quit()
		require.Equal(t, want, w.one())
		// Fewer if a member was stopped before it came to all of them.
		require.LessOrEqual(t, met.own.Load(), int64(behind+perhaps), "records that had their effect were delivered again")
	})

	// A handler that heeds its context is cut off by the hard signal, one that does not is left behind; either way the
	// record is neither dead nor acknowledged.
	eachStore(t, "GivesBackWhatDoesNotFinishInTime", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.store = store
		s := w.setup()
		s.DrainGrace = time.Second
		entered := make(chan struct{}, 1)
		w.produce(w.orders(1, 1, order{})...)
		m := w.run(s, nil, s.route("post", func(ctx context.Context, _ pgx.Tx, _ consumer.Event[order]) error {
			entered <- struct{}{}
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), record.ErrStopping)
			return ctx.Err()
		}))
		<-entered
		m.quit()
		require.Zero(t, w.committed()[0])
		w.noLetters()
		next := w.start(s)
		w.drained()
		next.quit()
		require.Equal(t, tally{Records: 1, Effected: 1}, w.one())
	})

	// Back-offs and holds end at once: nobody waits out a wait.
	eachStore(t, "EndsEveryWait", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.store = store
		s := w.setup()
		s.Options.BackoffBase, s.Options.BackoffCap = time.Minute, time.Minute
		s.Options.AttemptTimeout = time.Second
		waiting := make(chan struct{}, 100)
		w.produce(w.orders(5, 5, order{Do: "flaky", N: 99})...)
		m := w.run(s, &record.Hooks{OnAttempt: func(i record.AttemptInfo) { waiting <- struct{}{} }}, s.scripted()...)
		for range 5 {
			<-waiting
		}
		began := time.Now()
		m.quit()
		require.Less(t, time.Since(began), 9*time.Second, "the drain grace is 10 s, the back-offs up to a minute")
		require.Zero(t, w.committed()[0])
		w.noLetters()
	})

	eachWay(t, "InAnOrderlyProcessIsSIGTERM", func(t *testing.T, as way) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		w.way = as
		w.produce(w.orders(1000, 50, order{})...)
		p := w.spawn(w.setup())
		w.past(50)
		p.quit() // exit status 0
		w.noGap()
		m := w.start(w.setup())
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 1000, Effected: 1000}, w.one())
	})
}

// TestStop_LeavesNothingRunning is not parallel: it counts the goroutines of the process.
//
//nolint:paralleltest // see above
func TestStop_LeavesNothingRunning(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 4)
	w.produce(w.orders(300, 20, order{})...)
	w.produce(w.orders(5, 5, order{Do: "fail"})...)
	before := goleak.IgnoreCurrent()
	m := w.start(w.setup())
	w.past(10)
	m.quit()
	require.NoError(t, goleak.Find(before, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write")))
}

// noGap requires that the group has committed exactly what has an outcome: per partition everything that is effected,
// skipped or dead stands below the offset or comes after a record that has none. It counts the effects of the latter, and
// those skipped of which the offset store shows nothing.
func (w *world) noGap() (effectsBehind, perhaps int) {
	w.t.Helper()
	committed := w.committed()
	b := w.books("post", w.read(w.topic), w.readLetters()["post"], nil)
	behind := map[int32]bool{}
	for _, r := range b.records {
		if b.byOffset && skips(r) {
			perhaps++
			continue
		}
		row, known := b.rows[b.id(r)]
		effected := len(b.effects[placeOf(r)]) > 0
		known = known || b.byOffset && effected
		switch done := r.Offset < committed[r.Partition]; {
		case done && !known:
			require.Fail(w.t, "an offset passed a record without an outcome", placeOf(r))
		case !done && !known:
			behind[r.Partition] = true
		case !done && !behind[r.Partition]:
			require.Fail(w.t, "what was finished is not committed", "%s of %d", placeOf(r), committed[r.Partition])
		case !done && (effected || row.State == effectedRow):
			effectsBehind++
		}
	}
	return effectsBehind, perhaps
}
