package e2e

import (
	"bytes"
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// built is a command of this repository, in a directory that the test's end removes.
func built(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/"+name)
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// operator runs the headrace command as somebody at a terminal would.
type operator struct{ path string }

// replay replays dead letters of the world, and gives what it printed.
func (o operator) replay(w *world, args ...string) string {
	w.t.Helper()
	cmd := o.command(w, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(w.t, cmd.Run(), "%s%s", &out, &errs)
	return out.String()
}

func (o operator) command(w *world, args ...string) *exec.Cmd {
	w.t.Helper()
	args = append([]string{"dlq", "replay", "--brokers", strings.Join(w.brokers, ","), "--topic", w.deadLetters, "--yes"}, args...)
	return exec.CommandContext(context.WithoutCancel(w.t.Context()), o.path, args...)
}

// killed replays and is killed as soon as it has sent something, wherever it is then.
func (o operator) killed(w *world) {
	w.t.Helper()
	before := len(w.readReplays())
	cmd := o.command(w)
	require.NoError(w.t, cmd.Start())
	w.eventually("something is replayed", func() bool { return len(w.readReplays()) > before })
	_ = cmd.Process.Kill() // it may have come to its end
	_ = cmd.Wait()
}

// broken are orders that die until the route is repaired, of every odd kind.
func (w *world) broken(n int) []*kgo.Record {
	w.t.Helper()
	o := order{Do: "broken"}
	rs := append(w.orders(n, n, o), w.hostile(o)...)
	for range 5 { // known by their coordinates
		r := w.record("", o)
		r.Headers = nil
		rs = append(rs, r)
	}
	return rs
}

// TestReplay runs the command as it is built, against consumers that run.
func TestReplay(t *testing.T) {
	t.Parallel()
	op := operator{built(t, "headrace")}

	// Case 47. Two routes of two consumer groups have died of the same records, and all letters stand in one topic. One of
	// the four is replayed.
	t.Run("RunsTheRouteThatFailedAndNoOther", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.routes = []string{"post", "notify"}
		other := w.neighbour()
		healthy := w.orders(100, 30, order{})
		broken := w.broken(20)
		w.produce(healthy...)
		w.produce(broken...)
		n, dead := len(healthy)+len(broken), len(broken)
		var replays outcomes
		m, o := w.run(w.setup(), replays.hooks(), w.setup().scripted()...), other.start(other.setup())
		w.drained()
		other.drained()
		for _, x := range []*world{w, other} {
			for route, got := range x.audit() {
				require.Equal(t, tally{Records: n, Effected: n - dead, Dead: dead}, got, route)
			}
		}
		w.repair("post")
		w.repair("notify") // would run well too
		other.repair("post")
		op.replay(w, "--group", w.group, "--route", "post")
		w.replaysDrained()
		w.produce(w.record("last", order{}))
		other.drained()
		m.quit()
		o.quit()
		got := w.audit()
		require.Equal(t, tally{Records: n + 1, Effected: n + 1}, got["post"])
		require.Equal(t, tally{Records: n + 1, Effected: n + 1 - dead, Dead: dead}, got["notify"])
		require.Equal(t, map[string]int{"post effected": dead, "notify foreign": dead}, replays.seen())
		for route, got := range other.audit() {
			require.Equal(t, tally{Records: n + 1, Effected: n + 1 - dead, Dead: dead}, got, route)
		}
		require.Empty(t, other.readReplays())
	})

	// Killed three times, then two at once, then once more, while the consumer is at it.
	eachStore(t, "KilledTwoAtOnceAndAgainHasEachEffectOnce", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		w.store = store
		broken := w.broken(1500)
		w.produce(broken...)
		m := w.start(w.setup())
		w.drained()
		require.Len(t, w.readLetters()["post"], len(broken))
		w.repair("post")
		for range 3 {
			op.killed(w)
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { op.replay(w) })
		}
		both.Wait()
		op.replay(w)
		require.Greater(t, len(w.readReplays()), 3*len(broken))
		w.replaysDrained()
		m.quit()
		require.Equal(t, tally{Records: len(broken), Effected: len(broken)}, w.one())
		require.Equal(t, len(broken), w.effected())
	})

	// The fix was none: each replay ends in one more letter, of the same size, and the latest is what is replayed next.
	eachStore(t, "ThatFailsAgainIsDeadAgainOnceAndNoLarger", func(t *testing.T, store dedup.Store) {
		const rounds = 5
		w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
		w.store = store
		broken := w.broken(10)
		w.produce(broken...)
		m := w.start(w.setup())
		w.drained()
		for round := range rounds {
			require.Contains(t, op.replay(w), "sent")
			require.Len(t, w.readReplays(), (round+1)*len(broken))
			w.replaysDrained()
			require.Equal(t, tally{Records: len(broken), Dead: len(broken)}, w.one())
		}
		for at, letters := range w.readLetters()["post"] {
			require.Len(t, letters, 1+rounds, at)
			for _, l := range letters[1:] {
				require.Len(t, l.fields, len(letters[0].fields))
				require.InDelta(t, letters[1].size(), l.size(), 16, "digits of numbers may differ")
			}
		}
		w.repair("post")
		op.replay(w)
		require.Len(t, w.readReplays(), (rounds+1)*len(broken))
		w.replaysDrained()
		m.quit()
		require.Equal(t, tally{Records: len(broken), Effected: len(broken)}, w.one())
	})

	// The consumer is killed as soon as replays have their effect, and so is its heir; both are replayed to.
	eachStore(t, "WhileTheConsumerIsKilledAndStarted", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, impatient(t), 4)
		w.store = store
		s := w.setup()
		s.Session = time.Second
		broken := w.broken(800)
		w.produce(broken...)
		p := w.spawn(s)
		w.drained()
		require.Len(t, w.readLetters()["post"], len(broken))
		w.repair("post")
		for range 3 {
			had := w.effected()
			op.replay(w)
			w.eventually("replays have their effect", func() bool { n := w.effected(); return n > had || n == len(broken) })
			p.kill()
			p = w.spawn(s)
		}
		w.replaysDrained()
		p.quit()
		require.Equal(t, tally{Records: len(broken), Effected: len(broken)}, w.one())
	})

	// It had charged, and what came after it failed.
	eachStore(t, "DoesNotChargeAgainWhatWasChargedBeforeItDied", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		w.store = store
		p := w.pays()
		s := w.callSetup()
		w.produce(w.orders(20, 20, order{Do: "broken"})...)
		w.produce(w.orders(10, 10, order{Ask: "answer", N: http.StatusPaymentRequired})...)
		m := w.start(s)
		w.drained()
		require.Equal(t, tally{Records: 30, Dead: 30}, w.one())
		require.Len(t, p.charges, 20)
		w.repair("post")
		p.paid.Store(true)
		for range 2 {
			op.replay(w)
		}
		w.replaysDrained()
		m.quit()
		require.Equal(t, tally{Records: 30, Effected: 30}, w.one())
		require.Len(t, p.charges, 30)
	})
}

// neighbour is another consumer group of the same topic, with a database of its own and the same dead letter topic.
func (w *world) neighbour() *world {
	w.t.Helper()
	other := *w
	other.group, other.dsn = kafkatest.Name(w.t), pgtest.DSN(w.t, migrations.Up, effectsTable)
	other.pool = pgtest.Pool(w.t, other.dsn)
	other.renewAdmin()
	w.neighbours, other.neighbours = []string{other.group}, []string{w.group}
	return &other
}

// outcomes count what became of replays, by route. Safe for concurrent use.
type outcomes struct {
	mu sync.Mutex
	n  map[string]int
}

func (o *outcomes) hooks() *record.Hooks {
	return &record.Hooks{OnSettle: func(i record.SettleInfo) {
		if !i.Replay {
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.n == nil {
			o.n = map[string]int{}
		}
		o.n[i.Route+" "+i.Outcome.String()]++
	}}
}

func (o *outcomes) seen() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}
