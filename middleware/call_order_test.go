package middleware_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestCall_Order(t *testing.T) {
	t.Parallel()

	bubble(t, "ByKeyTheNextCallComesWhenTheOneBeforeIsSettled", func(t *testing.T) {
		b := newBench(t)
		var done log[string]
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			done.add("call " + string(r.Value))
			return "paid", sleep(ctx, time.Second)
		})
		b.rt.Hooks.OnSettle = func(i record.SettleInfo) { done.add("settled " + string('0'+rune(i.Offset))) }
		c := b.run(t, nothing, rec(0, "a"), rec(1, "a"), rec(2, "a"))
		require.Len(t, c.outcomes, 3)
		require.Equal(t, []string{"call 0", "settled 0", "call 1", "settled 1", "call 2", "settled 2"}, done.get())
	})

	bubble(t, "WhatIsBehindAFailureIsNotCalled", func(t *testing.T) {
		b := newBench(t)
		var called log[int64]
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			called.add(r.Offset)
			if r.Offset == 0 {
				return nil, fault.RetryAfter(errBoom, time.Minute)
			}
			return "paid", nil
		})
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(rec(0, "a"), rec(1, "a"), rec(2, "b"))
		elapse(time.Second)
		require.ElementsMatch(t, []int64{0, 2}, called.get())
		require.Equal(t, record.Effected, c.outcome(2))
	})

	bubble(t, "AMessageOfOneHasTheNextPlaceBesideALargeOne", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			return "paid", sleep(ctx, time.Second)
		}, func(c *downstream.Config) { c.MaxConcurrent = 2 })
		c := b.claim(t, 2, 20, b.handler(t, nothing))
		all := recs(21, ownKey)
		c.add(all[:20]...)
		elapse(time.Second / 2)
		c.add(all[20])
		c.idle()
		require.Equal(t, 2*time.Second, b.at(20))
	})

	bubble(t, "WhoeverIsDoneGoesOnWhileOthersStillCall", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			return "paid", sleep(ctx, time.Duration(1+r.Offset)*time.Second)
		})
		b.run(t, nothing, recs(8, ownKey)...)
		for o := range int64(8) {
			require.Equal(t, time.Duration(1+o)*time.Second, b.at(o))
		}
	})

	bubble(t, "DonePermanentAndHeldInOneMessageSettleIndependently", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			switch {
			case r.Offset == 1:
				return nil, errBoom
			case r.Offset == 2 && time.Since(b.began) < time.Second:
				return nil, fault.Unavailable(errBoom, "payments")
			}
			return "paid", nil
		})
		c := b.run(t, nothing, recs(3, ownKey)...)
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, record.Dead, c.outcome(1))
		require.Equal(t, record.Effected, c.outcome(2))
		require.Less(t, b.at(0), 50*time.Millisecond)
		require.Less(t, b.at(1), 50*time.Millisecond)
		require.GreaterOrEqual(t, b.at(2), time.Second)
	})

	bubble(t, "NoMoreSideBySideThanTheDependencyTakes", func(t *testing.T) {
		b := newBench(t)
		var now, most atomic.Int32
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			return "paid", sleep(ctx, time.Second)
		}, func(c *downstream.Config) { c.MaxConcurrent = 7 })
		c := b.claim(t, 2, 50, b.handler(t, nothing))
		c.add(recs(70, ownKey)...)
		c.idle()
		require.Equal(t, int32(7), most.Load())
		require.Equal(t, 10*time.Second, time.Since(b.began), "and no fewer")
	})
}

func TestCall_Lanes(t *testing.T) {
	t.Parallel()

	bubble(t, "SlowCallBlocksItsKeyAndNotItsNeighbours", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if r.Offset%100 == 0 {
				return "paid", sleep(ctx, 9*time.Second)
			}
			return "paid", sleep(ctx, 10*time.Millisecond)
		})
		c := b.claim(t, 1, 100, b.handler(t, nothing))
		c.add(recs(3000, ownKey)...)
		c.idle()
		require.Len(t, c.outcomes, 3000)
		require.Less(t, time.Since(b.began), 20*time.Second, "not 30 × 9s")
	})

	bubble(t, "WhoWaitsForAPlaceKeepsItsLane", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, callOf(5*time.Second), func(c *downstream.Config) { c.MaxConcurrent = 5 })
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(recs(100, ownKey)...)
		elapse(time.Second)
		c.mu.Lock()
		inFlight := c.inFlight()
		c.mu.Unlock()
		require.LessOrEqual(t, inFlight, 20, "two lanes of ten")
		c.idle()
		require.Equal(t, 100*time.Second, time.Since(b.began))
	})

	// Whoever gets them next would call again.
	bubble(t, "ClaimThatEndsMeanwhileAppliesWhatWasCalledFor", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, callOf(5*time.Second))
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(recs(3, ownKey)...)
		elapse(time.Second)
		require.Equal(t, 3, c.maxWaits)
		began := time.Now()
		c.end(10 * time.Second)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Len(t, c.outcomes, 3)
		require.Zero(t, c.givenBack)
	})

	bubble(t, "ClaimThatEndsForGoodMeanwhileAppliesNothingMore", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, callOf(5*time.Second))
		c := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { t.Error("it ran"); return nil }))
		c.add(recs(3, ownKey)...)
		elapse(time.Second)
		c.end(time.Second)
		synctest.Wait()
		require.Empty(t, c.outcomes)
	})
}
