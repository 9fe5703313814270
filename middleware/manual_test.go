package middleware_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// sayDead writes the dead row of a record as headrace bury does, whatever its consumer does with it at this moment.
func (b *bench) sayDead(t *testing.T, r *record.Record) {
	t.Helper()
	r = rebuilt(r)
	require.NoError(t, dedup.Identify(r, dedup.DefaultIdentity()...))
	answer, err := b.in.Bury(t.Context(), r, dedup.Grave{Reason: "manual", Err: "not today"})
	require.NoError(t, err)
	require.Equal(t, dedup.Buried, answer)
}

// requireManual checks that a record went to its grave by what the operator said.
func (b *bench) requireManual(t *testing.T, c *claim, offset int64) {
	t.Helper()
	require.Equal(t, record.Dead, c.outcome(offset))
	require.Len(t, b.topic.of(offset), 1)
	l := b.topic.of(offset)[0]
	require.Equal(t, dlq.Manual, l.Reason)
	require.EqualError(t, l.Err, "not today")
	require.Equal(t, "permanent", l.Class)
	require.Zero(t, b.in.effectsOf(offset))
}

// An operator says that a record is dead: in whatever it waits, its next pass finds the row, and the partition goes on.
func TestManual(t *testing.T) {
	t.Parallel()

	bubble(t, "RecordThatAlwaysFailsAloneIsFreed", func(t *testing.T) {
		b := newBench(t)
		var calls atomic.Int32
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			if r.Offset == 7 {
				calls.Add(1)
				return nil, fault.Transient(errBoom)
			}
			return "paid", nil
		}, func(c *downstream.Config) { c.Breaker.MinRequests = 1000 })
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(rec(7, "k"), rec(8, "k"))
		elapse(time.Hour)
		require.Empty(t, c.outcomes, "it blocks")
		b.sayDead(t, rec(7, "k"))
		before := calls.Load()
		elapse(11 * time.Second) // the longest back-off
		b.requireManual(t, c, 7)
		require.Zero(t, b.topic.of(7)[0].Attempts, "it was never charged")
		require.Equal(t, before, calls.Load(), "it is not called for")
		require.Equal(t, record.Effected, c.outcome(8))
	})

	bubble(t, "ReportNamesTheCommand", func(t *testing.T) {
		b := newBench(t)
		b.rt.Group, b.rt.Name = "bill ing's", "ledger"
		b.calls(t, func(context.Context, *record.Record) (any, error) { return nil, fault.Transient(errBoom) },
			func(c *downstream.Config) { c.Breaker.MinRequests = 1000 })
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		r := deliveredAt(t, 7)
		c.add(r)
		elapse(2 * time.Minute)
		require.Equal(t, []string{record.ReportNotCorroborated}, b.reports.kinds())
		require.Contains(t, b.reports.all[0].Hint, `headrace bury --group 'bill ing'\''s' --route ledger --at orders/0/7 --id `+r.Identity.Key.String())
	})

	bubble(t, "HeadAtTheBreakersGateGivesItsTurnToTheNextOne", func(t *testing.T) {
		b := newBench(t)
		var called log[time.Duration]
		var healthy atomic.Bool
		d := b.calls(t, func(context.Context, *record.Record) (any, error) {
			called.add(time.Since(b.began))
			if healthy.Load() {
				return "paid", nil
			}
			return nil, fault.Transient(errBoom)
		}, func(c *downstream.Config) { c.Breaker.MinRequests = 4 })
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(recs(6, ownKey)...)
		elapse(20 * time.Second)
		require.Equal(t, record.BreakerOpen, d.State())
		require.Empty(t, c.outcomes)
		b.sayDead(t, rec(2, ownKey(2)))
		for range 100 { // the probe is drawn by lot: until it is this one
			if elapse(40 * time.Second); c.outcome(2) == record.Dead {
				break
			}
		}
		b.requireManual(t, c, 2)
		require.Contains(t, called.get(), b.at(2), "the next one probes in the same moment")
		require.Len(t, c.outcomes, 1, "nobody else is touched")
		healthy.Store(true)
		c.idle()
		elapse(time.Second)
		require.Len(t, c.outcomes, 6)
		require.Len(t, b.topic.letters, 1)
		require.False(t, b.rt.Gates.Shut())
	})

	bubble(t, "AloneAtTheBreakersGateItIsFreedByItsProbe", func(t *testing.T) {
		b := newBench(t)
		d := b.calls(t, func(context.Context, *record.Record) (any, error) { return nil, fault.Transient(errBoom) },
			func(c *downstream.Config) { c.Breaker.MinRequests = 1 })
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(rec(0, "k"))
		elapse(10 * time.Second)
		require.Equal(t, record.BreakerOpen, d.State())
		b.sayDead(t, rec(0, "k"))
		elapse(31 * time.Second) // the breaker's open time
		b.requireManual(t, c, 0)
		require.False(t, b.rt.Gates.Shut(), "the line must supply the next probe")
	})

	bubble(t, "BehindTheFloodGuardItNeedsNoPermit", func(t *testing.T) {
		b := newBench(t)
		b.rt.Flood = middleware.NewFloodGuard(middleware.FloodConfig{Run: 2})
		c := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { return errBoom }))
		c.add(recs(5, ownKey)...)
		elapse(time.Second)
		require.Len(t, c.outcomes, 2)
		held := int64(0)
		for c.outcome(held) == record.Dead {
			held++
		}
		b.sayDead(t, rec(held, ownKey(int(held))))
		elapse(3 * 31 * time.Second) // each of the three has been the guard's probe
		b.requireManual(t, c, held)
		require.Len(t, c.outcomes, 3, "the guard holds the others")
		require.Contains(t, b.rt.Flood.Refusing(), middleware.Partition{Topic: "orders"})
	})

	bubble(t, "InABusyHold", func(t *testing.T) {
		b := newBench(t)
		c := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { return fault.Busy(errBoom) }))
		c.add(rec(0, "k"))
		elapse(10 * time.Minute)
		require.Empty(t, c.outcomes)
		b.sayDead(t, rec(0, "k"))
		elapse(11 * time.Second)
		b.requireManual(t, c, 0)
	})

	bubble(t, "InAHoldForWhatItsHandlerSaysIsDown", func(t *testing.T) {
		b := newBench(t)
		c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
			if offsetOf(m) == 0 {
				return fault.Unavailable(errBoom, "ledger-db")
			}
			return nil
		}))
		c.add(rec(0, "k"), rec(1, "k"))
		elapse(time.Minute)
		require.Empty(t, c.outcomes)
		b.sayDead(t, rec(0, "k"))
		c.idle()
		elapse(time.Second)
		b.requireManual(t, c, 0)
		require.Equal(t, record.Effected, c.outcome(1))
		require.Empty(t, b.rt.Gates.Down())
	})

	bubble(t, "InTheHoldOfARetryAfterOnceThatIsOver", func(t *testing.T) {
		b := newBench(t)
		c := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { return fault.RetryAfter(errBoom, 5*time.Minute) }))
		c.add(rec(0, "k"))
		elapse(time.Minute)
		b.sayDead(t, rec(0, "k"))
		elapse(5 * time.Minute)
		b.requireManual(t, c, 0)
	})

	bubble(t, "NotYetReadItIsNeverCalledFor", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			require.NotZero(t, r.Offset)
			return "paid", nil
		})
		b.sayDead(t, rec(0, "k"))
		c := b.run(t, nothing, rec(0, "k"), rec(1, "k"))
		b.requireManual(t, c, 0)
		require.Equal(t, record.Effected, c.outcome(1))
	})

	bubble(t, "DuringItsCallTheCallEndsAndTheRowDecides", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, callOf(5*time.Second))
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(rec(0, "k"))
		elapse(time.Second)
		b.sayDead(t, rec(0, "k"))
		c.idle()
		b.requireManual(t, c, 0)
		require.Equal(t, 5*time.Second, b.at(0).Truncate(time.Second))
	})

	bubble(t, "ReplayOfItsLetterIsARecordLikeOthers", func(t *testing.T) {
		b := newBench(t)
		var r *record.Record
		b.sayDead(t, rec(0, "k"))
		c := b.run(t, func(m *message.Message) error { r = record.Of(m.Context()); return nil }, rec(0, "k"))
		b.requireManual(t, c, 0)
		require.Nil(t, r)
		dead := rebuilt(b.topic.of(0)[0].Record)
		require.NoError(t, dedup.Identify(dead, dedup.DefaultIdentity()...))
		c.add(replayed(dead, func(e *dlq.Envelope) { e.Reason = dlq.Manual }))
		c.idle()
		require.Equal(t, record.Effected, c.outcome(100))
		require.NotNil(t, r)
	})
}
