package parking_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// fed is a Source with one subscription.
type fed struct {
	t     *testing.T
	store *parking.Store
	pool  *pgxpool.Pool
	src   *parking.Source
	out   <-chan *message.Message
	end   context.CancelFunc
}

func feed(t *testing.T, p parking.Policy, cfg parking.SourceConfig) *fed {
	t.Helper()
	s, pool := newStore(t, p)
	return feedOf(t, s, pool, cfg)
}

func feedOf(t *testing.T, s *parking.Store, pool *pgxpool.Pool, cfg parking.SourceConfig) *fed {
	t.Helper()
	if cfg.Poll == 0 {
		cfg.Poll = time.Millisecond
	}
	f := &fed{t: t, store: s, pool: pool, src: parking.NewSource(s, cfg)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	f.end = cancel
	out, err := f.src.Subscribe(ctx, "parked")
	require.NoError(t, err)
	f.out = out
	t.Cleanup(func() {
		cancel()
		require.NoError(t, f.src.Close())
	})
	return f
}

// next waits for a message and gives its records.
func (f *fed) next() (*message.Message, []*record.Record) {
	f.t.Helper()
	select {
	case msg := <-f.out:
		require.NotNil(f.t, msg, "the subscription has ended")
		rs, err := record.Records(msg)
		require.NoError(f.t, err)
		return msg, rs
	case <-time.After(patience):
		f.t.Fatal("no message")
		return nil, nil
	}
}

func (f *fed) parked(n int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return stats(f.t, f.store).Records == n }, patience, time.Millisecond)
}

func trial(r *record.Record) *parking.Trial { return r.Parked.(*parking.Trial) }

var quick = parking.SourceConfig{MaxBatch: 100, DrainGrace: 20 * time.Millisecond, HardGrace: 20 * time.Millisecond}

func TestSource(t *testing.T) {
	t.Parallel()

	t.Run("GivesWhatIsDueInOrderAndWholeAndForgetsWhatIsSettled", func(t *testing.T) {
		t.Parallel()
		f := feed(t, soon, quick)
		park(t, f.store, head(rec("a", 1)), follower(rec("a", 2)), follower(rec("a", 3)))
		msg, rs := f.next()
		require.Len(t, rs, 3)
		for i, r := range rs {
			want := rec("a", int64(i+1))
			require.Equal(t, want.Value, r.Value)
			require.Equal(t, want.Identity, r.Identity)
			require.Equal(t, rs[0].Domain(), r.Domain())
			require.NotEmpty(t, r.Domain())
		}
		require.Equal(t, 1, trial(rs[0]).Round)
		require.Len(t, trial(rs[0]).History, 1)
		require.Zero(t, trial(rs[1]).Round)
		for _, r := range rs {
			require.True(t, r.Settle(record.Effected))
			require.False(t, r.Settle(record.Dead), "the first wins")
		}
		msg.Ack()
		f.parked(0)
	})

	t.Run("AnAckSettlesAMessageOfOne", func(t *testing.T) {
		t.Parallel()
		f := feed(t, soon, parking.SourceConfig{})
		park(t, f.store, head(rec("a", 1)), follower(rec("a", 2)))
		for range 2 {
			msg, rs := f.next()
			require.Len(t, rs, 1)
			require.Equal(t, rs[0].Value, []byte(msg.Payload))
			msg.Ack()
		}
		f.parked(0)
	})

	t.Run("ANackGivesBackAndSpendsNoRound", func(t *testing.T) {
		t.Parallel()
		f := feed(t, soon, parking.SourceConfig{})
		park(t, f.store, head(rec("a", 1)))
		for range 2 {
			msg, rs := f.next()
			require.Equal(t, 1, trial(rs[0]).Round)
			msg.Nack()
		}
		require.EqualValues(t, 1, stats(t, f.store).Records)
	})

	t.Run("AReparkedHeadKeepsThoseBehindItFromRunning", func(t *testing.T) {
		t.Parallel()
		f := feed(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, Rounds: 2}, quick)
		park(t, f.store, head(rec("a", 1)), follower(rec("a", 2)), head(rec("b", 3)))
		msg, rs := f.next()
		byKey := map[string][]*record.Record{}
		for _, r := range rs {
			byKey[string(r.Key)] = append(byKey[string(r.Key)], r)
		}
		a, b := byKey["a"], byKey["b"]
		ours, err := parking.Repark(t.Context(), a[0], 0, parking.Failure{Class: "transient", Message: "again"})
		require.NoError(t, err)
		require.True(t, ours)
		require.True(t, a[0].Settle(record.Parked))
		require.True(t, a[1].Ending(), "it must not overtake")
		require.False(t, a[1].Settle(record.Effected))
		require.False(t, b[0].Ending(), "another key goes on")
		require.True(t, b[0].Settle(record.Effected))
		msg.Ack()
		f.parked(2)
		_, rs = f.next()
		require.Equal(t, a[0].Value, rs[0].Value)
		require.Equal(t, 2, trial(rs[0]).Round)
		require.True(t, trial(rs[0]).Last)
		require.Equal(t, "again", trial(rs[0]).History[1].Message)
	})

	t.Run("ADeadHeadReleasesOrHolds", func(t *testing.T) {
		t.Parallel()
		for _, on := range []parking.OnDead{parking.Release, parking.Hold} {
			f := feed(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, OnDead: on}, quick)
			park(t, f.store, head(rec("a", 1)), follower(rec("a", 2)))
			msg, rs := f.next()
			require.True(t, rs[0].Settle(record.Dead))
			require.Equal(t, on == parking.Hold, rs[1].Ending())
			if on == parking.Hold {
				record.GiveBack(rs[1:])
				msg.Ack()
				f.parked(1)
				nothingDue(t, f.store)
				ok, err := f.store.Retry(t.Context(), keyOf(rs[1]))
				require.NoError(t, err)
				require.True(t, ok)
				_, rs = f.next()
				require.Equal(t, []byte("v2"), rs[0].Value)
			} else {
				require.True(t, rs[1].Settle(record.Effected))
				msg.Ack()
				f.parked(0)
			}
		}
	})

	t.Run("AWaitingMessageOccupiesNoLane", func(t *testing.T) {
		t.Parallel()
		cfg := quick
		cfg.Lanes = 1
		f := feed(t, soon, cfg)
		park(t, f.store, head(rec("a", 1)))
		_, a := f.next()
		park(t, f.store, head(rec("b", 2)))
		record.Wait(a)
		_, b := f.next()
		resumed := make(chan bool)
		go func() { resumed <- record.Resume(a) }()
		require.True(t, b[0].Settle(record.Effected))
		require.True(t, <-resumed)
		require.True(t, a[0].Settle(record.Effected))
		f.parked(0)
	})

	t.Run("ShutGatesKeepWhatIsDueInTheDatabase", func(t *testing.T) {
		t.Parallel()
		gate := &gate{shut: make(chan struct{})}
		cfg := quick
		cfg.Gates = []parking.Gate{gate}
		f := feed(t, soon, cfg)
		park(t, f.store, head(rec("a", 1)))
		require.Eventually(t, func() bool { return stats(t, f.store).Lag > 20*time.Millisecond }, patience, time.Millisecond)
		close(gate.shut)
		_, rs := f.next()
		require.Equal(t, 1, trial(rs[0]).Round)
	})

	t.Run("TheEndGivesBackWhatHasNotRunAndEndsWhatRuns", func(t *testing.T) {
		t.Parallel()
		f := feed(t, soon, quick)
		park(t, f.store, head(rec("a", 1)), follower(rec("a", 2)))
		msg, rs := f.next()
		f.end()
		<-rs[0].Soft()
		<-rs[1].Soft()
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), record.ErrStopping)
		_, open := <-f.out
		require.False(t, open)
		require.False(t, rs[0].Settle(record.Effected), "it is another's by now")
		l := claimed(t, f.store, 1)
		require.Equal(t, 1, l.Lines[0].Round)
		require.Zero(t, l.Lines[0].Deaths)
		_, err := f.src.Subscribe(t.Context(), "parked")
		require.NoError(t, err)
		require.NoError(t, f.src.Close())
		_, err = f.src.Subscribe(t.Context(), "parked")
		require.ErrorIs(t, err, parking.ErrClosed)
	})

	t.Run("WhoLosesItsLeaseSettlesNothing", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, soon)
		s.SetLease(300 * time.Millisecond)
		f := feedOf(t, s, pool, quick)
		park(t, s, head(rec("a", 1)), follower(rec("a", 2)))
		_, rs := f.next()
		_, err := pool.Exec(t.Context(), "update headrace.parked_keys set token = -1, due = now() + interval '1 hour'")
		require.NoError(t, err)
		<-rs[1].Soft()
		require.False(t, rs[0].Settle(record.Effected))
		ours, err := parking.Repark(t.Context(), rs[0], 0, parking.Failure{})
		require.NoError(t, err)
		require.True(t, ours)
		require.EqualValues(t, 2, stats(t, s).Records)
	})

	t.Run("ALeaseLastsAsLongAsItsRecordsRun", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, soon)
		s.SetLease(90 * time.Millisecond)
		f := feedOf(t, s, pool, quick)
		park(t, s, head(rec("a", 1)))
		_, rs := f.next()
		var before, after time.Time
		due := func(into *time.Time) {
			require.NoError(t, pool.QueryRow(t.Context(), "select due from headrace.parked_keys").Scan(into))
		}
		due(&before)
		require.Eventually(t, func() bool {
			due(&after)
			return after.Sub(before) > 300*time.Millisecond
		}, patience, time.Millisecond)
		require.True(t, rs[0].Settle(record.Effected))
		f.parked(0)
	})

	t.Run("ASuspectRunsAlone", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, soon)
		park(t, s, head(rec("a", 1)), follower(rec("a", 2)), head(rec("b", 3)))
		_, err := pool.Exec(t.Context(), "update headrace.parked_keys set starts = 4 where key_id = $1", keyOf(rec("a", 1)))
		require.NoError(t, err)
		cfg := quick
		cfg.Lanes = 4
		f := feedOf(t, s, pool, cfg)
		_, rs := f.next()
		require.Equal(t, "b", string(rs[0].Key), "what is not suspect comes first")
		require.True(t, rs[0].Settle(record.Effected))
		_, rs = f.next()
		require.Len(t, rs, 1)
		require.Equal(t, "a", string(rs[0].Key))
		require.True(t, trial(rs[0]).CrashLoop)
		require.True(t, rs[0].Settle(record.Dead))
		_, rs = f.next()
		require.Equal(t, []byte("v2"), rs[0].Value)
		require.False(t, trial(rs[0]).CrashLoop)
	})

	t.Run("WhileNothingIsDueItLooksOnceAPoll", func(t *testing.T) {
		t.Parallel()
		proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up))
		pool := pgtest.Pool(t, proxy.DSN())
		s := openStore(t, pool, "r", soon)
		var claims atomic.Int32
		proxy.Once(func(r pgtest.Request) bool {
			if pgtest.SQL("skip locked")(r) {
				claims.Add(1)
			}
			return false
		}, pgtest.CutReply)
		cfg := quick
		cfg.Poll = time.Hour
		feedOf(t, s, pool, cfg)
		require.Eventually(t, func() bool { return claims.Load() == 2 }, patience, time.Millisecond, "of what is due, and of suspects")
		require.Never(t, func() bool { return claims.Load() > 2 }, 200*time.Millisecond, 10*time.Millisecond)
	})

	t.Run("AnotherOwnersRecordIsNotReparked", func(t *testing.T) {
		t.Parallel()
		ours, err := parking.Repark(t.Context(), rec("a", 1), 0, parking.Failure{})
		require.NoError(t, err)
		require.False(t, ours)
	})

	t.Run("ADatabaseThatIsAwayIsReportedOnceAndComesBack", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, soon)
		reports := make(chan record.Report, 100)
		cfg := quick
		cfg.Report = func(r record.Report) { reports <- r }
		_, err := pool.Exec(t.Context(), "alter table headrace.parked_keys rename to away")
		require.NoError(t, err)
		f := feedOf(t, s, pool, cfg)
		r := <-reports
		require.Equal(t, record.ReportParkingFailed, r.Kind)
		require.Error(t, r.Err)
		_, err = pool.Exec(t.Context(), "alter table headrace.away rename to parked_keys")
		require.NoError(t, err)
		park(t, s, head(rec("a", 1)))
		_, rs := f.next()
		require.True(t, rs[0].Settle(record.Effected))
		require.Empty(t, reports)
	})
}

type gate struct{ shut chan struct{} }

func (g *gate) Shut() bool {
	select {
	case <-g.shut:
		return false
	default:
		return true
	}
}

func (g *gate) Watch(func()) func() { return func() {} }
