package e2e

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// parks is a setup whose routes park after one failure, for a moment, as often as a test may last.
func (w *world) parks() setup {
	s := w.setup()
	s.Attempts = 1
	s.Park = &parking.Policy{Base: 50 * time.Millisecond, Cap: 200 * time.Millisecond, Rounds: 1000, Lease: time.Second}
	return s
}

// parked are the places of a route's parked records of the world's topic.
func (w *world) parked(route string) map[place]bool {
	w.t.Helper()
	found := map[place]bool{}
	rows, err := w.pool.Query(w.t.Context(), `select r.part, r.off from headrace.parked_records r
		join headrace.consumers c on c.id = r.consumer_id where c.consumer_group = $1 and c.route = $2 and r.topic_id = $3`,
		w.group, route, w.topicID(w.topic))
	require.NoError(w.t, err)
	var p place
	_, err = pgx.ForEachRow(rows, []any{&p.partition, &p.offset}, func() error {
		found[p] = true
		return nil
	})
	require.NoError(w.t, err)
	return found
}

// waiting is how many records are parked, of whatever topic.
func (w *world) waiting() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `select count(*) from headrace.parked_records`).Scan(&n))
	return n
}

func (w *world) nothingParked() {
	w.t.Helper()
	w.eventually("nothing is parked any more", func() bool { return w.waiting() == 0 })
}

// partnered are n records of so many keys, of which each seventh of the first few keys needs the partner; behind are those
// that must wait while it is down: of each key the first such one and all after it.
func (w *world) partnered(n, keys int) (rs []*kgo.Record, behind int) {
	w.t.Helper()
	blocked := map[string]bool{}
	for i := range n {
		key := "key-" + strconv.Itoa(i%keys)
		o := order{}
		if i%7 == 0 && i%keys < keys/3 {
			o.Do = "partner"
			blocked[key] = true
		}
		if blocked[key] {
			behind++
		}
		rs = append(rs, w.record(key, o))
	}
	return rs, behind
}

func TestParking(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		kind  kind
		stock bool
		real  bool
	}{
		"Apply": {kind: applies, real: true}, "Queue": {kind: queues}, "Batch": {kind: batches}, "UnderStock": {kind: applies, stock: true, real: true},
	} {
		// A partner is down for longer than a record may take; its records wait in Postgres with whatever is behind them, over
		// a restart, and everything else flows.
		t.Run("APartnerIsDownForLongerThanTheBudget/"+name, func(t *testing.T) {
			t.Parallel()
			brokers := kafkatest.Fake(t).ListenAddrs
			if c.real {
				brokers = kafkatest.Real(t).Brokers
			}
			w := newWorld(t, brokers(), 4)
			w.kind = c.kind
			s := w.parks()
			s.Stock = c.stock
			rs, behind := w.partnered(400, 60)
			w.produce(rs...)
			m := w.start(s)
			w.drained()
			m.quit()
			require.Positive(t, behind)
			require.Equal(t, tally{Records: 400, Effected: 400 - behind, Parked: behind}, w.one())
			w.repair("post")
			m = w.start(s)
			w.nothingParked()
			m.quit()
			require.Equal(t, tally{Records: 400, Effected: 400}, w.one())
			w.noLetters()
		})
	}

	// After its last round a record is dead, those behind it go on.
	t.Run("AfterTheLastRoundItIsDeadAndItsFollowersGoOn", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		s := w.parks()
		s.Park.Rounds = 2
		w.produce(w.record("a", order{Do: "partner"}), w.record("a", order{}), w.record("b", order{Do: "partner"}), w.record("a", order{}))
		m := w.start(s)
		w.drained()
		w.nothingParked()
		m.quit()
		require.Equal(t, tally{Records: 4, Effected: 2, Dead: 2}, w.one())
		require.Equal(t, map[string]int{"exhausted": 2}, w.reasons("post"))
	})

	// The call of a record is not made before those in front of it in its key have an outcome, or it would be charged first.
	t.Run("NobodyBehindAParkedRecordIsCalledFor", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		p := w.pays()
		s := w.callSetup()
		s.Attempts, s.Park = 1, w.parks().Park
		first, second, other := w.record("a", order{Do: "partner"}), w.record("a", order{}), w.record("b", order{})
		w.produce(first, second, other)
		m := w.start(s)
		w.drained()
		m.quit() // nobody is asked for anything any more
		require.Equal(t, tally{Records: 3, Effected: 1, Parked: 2}, w.one())
		require.Positive(t, p.times(first))
		require.Zero(t, p.times(second))
		w.repair("post")
		m = w.start(s)
		w.nothingParked()
		m.quit()
		require.Equal(t, tally{Records: 3, Effected: 3}, w.one())
		require.Equal(t, 1, p.times(second))
	})

	// A dead letter is replayed, and what it needs is down then: it waits as a replay, and has its effect as one.
	t.Run("AReplayedDeadLetterIsParked", func(t *testing.T) {
		t.Parallel()
		op := operator{built(t, "headrace")}
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		s := w.parks()
		var built, well atomic.Bool
		apply := func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
			switch {
			case !built.Load():
				return errors.New("not built yet")
			case !well.Load():
				return fault.Transient(errors.New("the partner does not answer"))
			}
			return write(ctx, tx, "post", e)
		}
		w.produce(w.record("a", order{}), w.record("", order{}), w.record("b", order{}))
		m := w.run(s, nil, s.route("post", apply))
		w.drained()
		require.Equal(t, map[string]int{"permanent": 3}, w.reasons("post"))
		built.Store(true)
		op.replay(w, "--group", w.group, "--route", "post")
		w.replaysDrained()
		m.quit()
		require.Equal(t, 3, w.waiting())
		well.Store(true)
		m = w.run(s, nil, s.route("post", apply))
		w.nothingParked()
		m.quit()
		require.Equal(t, tally{Records: 3, Effected: 3}, w.one())
	})

	// Each of two members runs a parked record while the other one does.
	t.Run("TwoMembersShareWhatIsDue", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		s := w.parks()
		s.Park.Lease = time.Minute // it is not the lease that hands them over
		w.produce(w.orders(20, 20, order{Do: "partner"})...)
		m := w.start(s)
		w.drained()
		m.quit()
		require.Equal(t, 20, w.waiting())
		s.Options.MaxBatch, s.Options.AttemptTimeout = 1, patience
		s.Tune = func(c *consumer.Config) { c.MaxPollInterval = 10 * patience }
		var both sync.WaitGroup
		both.Add(2)
		members := make([]*member, 2)
		for i := range members {
			var arrived sync.Once
			members[i] = w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
				arrived.Do(both.Done)
				both.Wait()
				return write(ctx, tx, "post", e)
			}))
		}
		w.nothingParked()
		for _, m := range members {
			m.quit()
		}
		require.Equal(t, tally{Records: 20, Effected: 20}, w.one())
	})

	// What was parked belongs to no partition: a member that comes and takes them all away does not end it.
	t.Run("ARebalanceDoesNotTouchAParkedRecordThatRuns", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		s := w.parks()
		s.Park.Lease = time.Minute
		s.Eager = true // every partition is given up
		w.produce(w.record("a", order{Do: "partner"}))
		m := w.start(s)
		w.drained()
		m.quit()
		s.Options.AttemptTimeout = patience
		s.Tune = func(c *consumer.Config) { c.MaxPollInterval = 10 * patience }
		runs, release := make(chan struct{}), make(chan struct{})
		revoked, settled := make(chan record.ClaimInfo, 100), make(chan record.SettleInfo, 100)
		first := w.run(s, &record.Hooks{
			OnClaim: func(i record.ClaimInfo) {
				if i.Event == "revoked" && i.Topic == w.topic {
					revoked <- i
				}
			},
			OnSettle: func(i record.SettleInfo) { settled <- i },
		}, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
			close(runs)
			select {
			case <-release:
				return write(ctx, tx, "post", e)
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		<-runs
		w.flows(first)
		second := w.run(s, nil, s.scripted()...)
		<-revoked
		w.flows(second)
		close(release)
		i := <-settled
		require.Equal(t, record.Effected, i.Outcome)
		require.True(t, i.Unparked)
		w.nothingParked()
		first.quit()
		second.quit()
		require.Equal(t, tally{Records: 1, Effected: 1}, w.one())
	})
}

// times is how often the order of a record was asked for.
func (p *payments) times(r *kgo.Record) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[header(r, uuidHeader)]
}

func TestParkingCrash(t *testing.T) {
	t.Parallel()

	// While records are being parked, while they wait and fail again, and while they have their effects.
	t.Run("KilledWhereverItIs", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, impatient(t), 4)
		s := w.parks()
		s.Session = time.Second
		rs, behind := w.partnered(1500, 150)
		w.produce(rs...)
		victim := w.spawn(s)
		w.eventually("some are parked", func() bool { return w.waiting() > behind/4 })
		victim.kill()
		victim = w.spawn(s)
		w.drained()
		victim.kill() // some of them run again at any time
		require.Equal(t, tally{Records: 1500, Effected: 1500 - behind, Parked: behind}, w.one())
		w.repair("post")
		victim = w.spawn(s)
		w.eventually("some had their effect", func() bool { return w.waiting() < behind-behind/10 })
		victim.kill()
		last := w.spawn(s)
		w.nothingParked()
		last.quit()
		require.Equal(t, tally{Records: 1500, Effected: 1500}, w.one())
		w.noLetters()
	})
}
