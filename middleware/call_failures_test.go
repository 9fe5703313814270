package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestCall_Failures(t *testing.T) {
	t.Parallel()

	bubble(t, "DoNotWaitForSlowCallsBesideThem", func(t *testing.T) {
		b := newBench(t)
		busy := 0
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			switch {
			case r.Offset == 1:
				return nil, errBoom
			case r.Offset == 2 && busy < 3:
				busy++
				return nil, fault.Busy(errBoom)
			case r.Offset == 3:
				return nil, sleep(ctx, 9*time.Second)
			}
			return "paid", nil
		})
		c := b.run(t, nothing, rec(0, "a"), rec(1, "b"), rec(2, "c"), rec(3, "d"), rec(4, "b"))
		require.Equal(t, record.Dead, c.outcome(1))
		require.Less(t, b.at(1), 50*time.Millisecond)
		require.Less(t, b.at(4), 50*time.Millisecond, "and what was behind it")
		require.Less(t, b.at(2), 2*time.Second, "tried again meanwhile")
		require.Equal(t, 9*time.Second, b.at(3))
		require.Len(t, c.outcomes, 5)
	})
}

func TestCall_Timeout(t *testing.T) {
	t.Parallel()

	bubble(t, "TimeoutLeavesTheOutcomeUnknown", func(t *testing.T) {
		b := newBench(t)
		var errs log[error]
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if r.Key != nil && string(r.Key) == "good" {
				return "paid", nil // somebody is answered: what fails beside it is charged
			}
			<-ctx.Done()
			errs.add(context.Cause(ctx))
			return nil, context.Cause(ctx)
		})
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(rec(0, "bad"))
		for i := range 60 {
			elapse(time.Second)
			c.add(rec(int64(1+i), "good"))
		}
		c.idle()
		l := b.topic.of(0)[0]
		require.Equal(t, dlq.UnknownOutcome, l.Reason)
		require.Equal(t, "ambiguous", l.Class)
		require.Equal(t, 3, l.Attempts)
		require.Len(t, errs.get(), 3)
		require.ErrorIs(t, errs.get()[0], context.DeadlineExceeded)
		require.ErrorContains(t, errs.get()[0], "timeout of 10s")
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, errs.get()[0], &timeout)
		require.True(t, timeout.Timeout())
		require.Empty(t, b.reports.kinds())
	})

	bubble(t, "TimedOutThenBusyIsEffectedAndChargedOnce", func(t *testing.T) {
		b := newBench(t)
		var charged, busy atomic.Int32
		var ids log[uuid.UUID]
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			p, _ := downstream.PermitFrom(ctx)
			ids.add(p.ID)
			switch {
			case charged.Load() == 0: // it charges, and the answer is late
				charged.Add(1)
				return nil, sleep(ctx, time.Minute)
			case busy.Add(1) <= 2: // the first one is still at work there
				return nil, fault.Busy(errors.New("409 in progress"))
			}
			return "charged before", nil
		})
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, "charged before", record.Of(m.Context()).Reply)
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, int32(1), charged.Load())
		require.Len(t, ids.get(), 4)
		for _, id := range ids.get() {
			require.Equal(t, ids.get()[0], id, "the same key each time")
		}
	})
}

func TestCall_Panic(t *testing.T) {
	t.Parallel()

	bubble(t, "PanicOutsideOfTheCallGivesBackAndStopsNobody", func(t *testing.T) {
		for _, end := range []func(){func() { panic("hook") }, runtime.Goexit} {
			b := newBench(t)
			var bad atomic.Bool
			bad.Store(true)
			b.rt.Hooks.OnAttempt = func(record.AttemptInfo) {
				if bad.Swap(false) {
					end()
				}
			}
			d := b.calls(t, paid, func(c *downstream.Config) { c.MaxConcurrent = 1 })
			c := b.run(t, nothing, recs(9, ownKey)...)
			require.Len(t, c.outcomes, 9)
			for o := range int64(9) {
				require.Empty(t, b.topic.of(o))
			}
			release, ok := d.Acquire(t.Context(), nil)
			require.True(t, ok, "no place is lost")
			release()
		}
	})

	bubble(t, "PanicInsideWaitsForThoseThatStillCall", func(t *testing.T) {
		b := newBench(t)
		var calling atomic.Int32
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			calling.Add(1)
			defer calling.Add(-1)
			return "paid", sleep(ctx, time.Duration(r.Offset)*time.Second)
		})
		passes := 0
		b.rt.Inbox = effects(func(ctx context.Context, rs []*record.Record, work dedup.Work) {
			if passes++; passes == 1 {
				panic("inbox")
			}
			b.in.Run(ctx, rs, work)
		})
		c := newClaim(1, 10, nil)
		_, err := deliver(b.handler(t, nothing), c, recs(3, ownKey)...)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, calling.Load(), "given back when nobody writes to them any more")
		require.Equal(t, 3, c.givenBack)
		c.end(0)
	})
}
