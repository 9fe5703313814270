package record_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

// owner is an Owner that writes down what it was asked.
type owner struct {
	mu      sync.Mutex
	refuses bool
	settled map[*record.Record]record.Outcome
	calls   []string
}

func newOwner() *owner { return &owner{settled: map[*record.Record]record.Outcome{}} }

func (o *owner) Settle(r *record.Record, as record.Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, done := o.settled[r]; done || o.refuses {
		return false
	}
	o.settled[r] = as
	return true
}

func (o *owner) note(what string, rs []*record.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range rs {
		what += fmt.Sprint(" ", r.Offset)
	}
	o.calls = append(o.calls, what)
}

func (o *owner) GiveBack(rs []*record.Record)    { o.note("give back", rs) }
func (o *owner) Wait(rs []*record.Record)        { o.note("wait", rs) }
func (o *owner) Resume(rs []*record.Record) bool { o.note("resume", rs); return !o.refuses }

type watcher struct{ told []record.Outcome }

func (w *watcher) Settled(_ *record.Record, o record.Outcome) { w.told = append(w.told, o) }

func bound(o *owner, n int) []*record.Record {
	rs := make([]*record.Record, n)
	for i := range rs {
		rs[i] = &record.Record{Topic: "orders", Partition: 3, Offset: int64(i), Value: []byte("v")}
		rs[i].Bind(o, nil, "k")
	}
	return rs
}

func TestRecord(t *testing.T) {
	t.Parallel()

	t.Run("FirstSettleWinsAndIsToldOnce", func(t *testing.T) {
		t.Parallel()
		o, w := newOwner(), &watcher{}
		r := bound(o, 1)[0]
		r.Watch(w)
		require.Equal(t, record.Unsettled, r.Outcome())
		require.True(t, r.Settle(record.Dead))
		require.False(t, r.Settle(record.Effected))
		require.Equal(t, record.Dead, r.Outcome())
		require.Equal(t, []record.Outcome{record.Dead}, w.told)
	})

	t.Run("SettleFromManyGoroutinesWinsOnce", func(t *testing.T) {
		t.Parallel()
		r := bound(newOwner(), 1)[0]
		won := make(chan bool, 20)
		for range cap(won) {
			go func() { won <- r.Settle(record.Effected) }()
		}
		wins := 0
		for range cap(won) {
			if <-won {
				wins++
			}
		}
		require.Equal(t, 1, wins)
	})

	t.Run("SettleThatTheOwnerRefusesIsNone", func(t *testing.T) {
		t.Parallel()
		o, w := newOwner(), &watcher{}
		o.refuses = true
		r := bound(o, 1)[0]
		r.Watch(w)
		require.False(t, r.Settle(record.Effected))
		require.False(t, r.Settled())
		require.Empty(t, w.told)
	})

	t.Run("RemainingKeepsOrderAndCopiesOnlyWhenItMust", func(t *testing.T) {
		t.Parallel()
		rs := bound(newOwner(), 4)
		require.Same(t, &rs[0], &record.Remaining(rs)[0])
		rs[1].Settle(record.Effected)
		rs[3].Settle(record.Effected)
		require.Equal(t, []*record.Record{rs[0], rs[2]}, record.Remaining(rs))
		require.Len(t, rs, 4)
		rs[0].Settle(record.Dead)
		rs[2].Settle(record.Dead)
		require.Empty(t, record.Remaining(rs))
		require.Empty(t, record.Remaining(nil))
	})

	t.Run("OwnerIsAskedForThoseThatAreLeft", func(t *testing.T) {
		t.Parallel()
		o := newOwner()
		rs := bound(o, 3)
		rs[1].Settle(record.Skipped)
		record.Wait(rs)
		require.True(t, record.Resume(rs))
		record.GiveBack(rs)
		rs[0].Settle(record.Dead)
		rs[2].Settle(record.Dead)
		record.GiveBack(rs)
		record.Wait(nil)
		require.True(t, record.Resume(nil))
		require.Equal(t, []string{"wait 0 1 2", "resume 0 1 2", "give back 0 2"}, o.calls)
		o.refuses = true
		require.False(t, record.Resume(rs))
	})

	t.Run("EndingFollowsSoft", func(t *testing.T) {
		t.Parallel()
		soft := make(chan struct{})
		r := &record.Record{}
		require.False(t, r.Ending(), "a record without a claim does not end")
		r.Bind(newOwner(), soft, "p")
		require.False(t, r.Ending())
		close(soft)
		require.True(t, r.Ending())
		<-r.Soft()
		require.Equal(t, "p", r.Domain())
	})

	t.Run("RunningTimeCountsBetweenBeginAndEnd", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := &record.Record{}
			_, runs := r.RunningSince()
			require.False(t, runs)
			<-time.After(time.Second) // what came before does not count
			r.Begin()
			<-time.After(time.Minute)
			since, runs := r.RunningSince()
			require.True(t, runs)
			require.Equal(t, time.Minute, time.Since(since))
			r.End()
			_, runs = r.RunningSince()
			require.False(t, runs)
		})
	})

	t.Run("HeaderGivesTheFirstOfItsName", func(t *testing.T) {
		t.Parallel()
		r := &record.Record{Headers: []record.Header{{Key: "a", Value: nil}, {Key: "b", Value: []byte("1")}, {Key: "b", Value: []byte("2")}}}
		v, ok := r.Header("a")
		require.True(t, ok)
		require.Nil(t, v)
		v, _ = r.Header("b")
		require.Equal(t, "1", string(v))
		_, ok = r.Header("c")
		require.False(t, ok)
	})
}

func TestEnds(t *testing.T) {
	t.Parallel()
	t.Run("EndOfAClaimIsACancellationAndNoTimeout", func(t *testing.T) {
		t.Parallel()
		for _, cause := range []error{record.ErrRevoked, record.ErrLost, record.ErrStopping} {
			wrapped := fmt.Errorf("post: %w", cause)
			require.ErrorIs(t, wrapped, context.Canceled)
			require.ErrorIs(t, wrapped, cause)
			require.NotErrorIs(t, wrapped, context.DeadlineExceeded)
			var timeout interface{ Timeout() bool }
			require.ErrorAs(t, wrapped, &timeout)
			require.False(t, timeout.Timeout())
		}
		require.NotErrorIs(t, record.ErrRevoked, record.ErrLost)
	})

	t.Run("NotRunIsNoCancellation", func(t *testing.T) {
		t.Parallel()
		require.NotErrorIs(t, record.ErrNotRun, context.Canceled)
	})
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	names := map[record.Outcome]string{
		record.Unsettled: "unsettled", record.Effected: "effected", record.Duplicate: "duplicate", record.Skipped: "skipped",
		record.Dead: "dead", record.Parked: "parked", record.Foreign: "foreign", record.Acked: "acked", 99: "outcome(99)",
	}
	for o, name := range names {
		require.Equal(t, name, o.String())
	}
	require.NotContains(t, record.Outcomes, record.Acked, "outside the ledger")
	require.NotContains(t, record.Outcomes, record.Foreign, "outside the ledger")
	require.Len(t, record.Outcomes, 5)
}

func TestHooks(t *testing.T) {
	t.Parallel()
	t.Run("ReportWithoutAHookIsNothing", func(t *testing.T) {
		t.Parallel()
		var none *record.Hooks
		none.Report(record.Report{Kind: "stuck_record"})
		(&record.Hooks{}).Report(record.Report{Kind: "stuck_record"})
		var told []record.Report
		h := &record.Hooks{OnReport: func(r record.Report) { told = append(told, r) }}
		h.Report(record.Report{Kind: "stuck_record", Err: errors.New("slow")})
		require.Len(t, told, 1)
	})
}
