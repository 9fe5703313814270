package middleware_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/record"
)

func TestCall_Stuck(t *testing.T) {
	t.Parallel()

	bubble(t, "ItsRecordGoesOnWithoutIt", func(t *testing.T) {
		b := newBench(t)
		leave := make(chan struct{})
		var calls atomic.Int32
		d := b.calls(t, func(context.Context, *record.Record) (any, error) {
			if calls.Add(1) == 1 {
				<-leave
				return "late", nil
			}
			return "paid", nil
		}, func(c *downstream.Config) { c.MaxConcurrent = 2 })
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, "paid", record.Of(m.Context()).Reply)
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, []string{record.ReportStuckRecord}, b.reports.kinds())
		require.Equal(t, 15*time.Second, b.reports.all[0].Age)
		require.Less(t, b.at(0), 16*time.Second)
		s, ok := b.rt.Stuck()
		require.True(t, ok)
		require.Equal(t, dedup.Stuck{Route: "ledger", Topic: "orders", Since: b.began}, s)
		require.Equal(t, 1, b.in.inCalls(), "it may still kill the process")

		first, ok := d.Acquire(t.Context(), nil)
		require.True(t, ok)
		full, cancel := context.WithCancel(t.Context())
		cancel()
		_, ok = d.Acquire(full, nil)
		require.False(t, ok, "it has taken its place along")
		close(leave)
		synctest.Wait()
		_, ok = b.rt.Stuck()
		require.False(t, ok)
		second, ok := d.Acquire(t.Context(), nil)
		require.True(t, ok)
		first()
		second()
		require.Zero(t, b.in.inCalls())
	})

	bubble(t, "TheyAreNoMoreThanThePlaces", func(t *testing.T) {
		b := newBench(t)
		leave := make(chan struct{})
		var stuck atomic.Int32
		b.calls(t, func(context.Context, *record.Record) (any, error) {
			stuck.Add(1)
			<-leave
			return "late", nil
		}, func(c *downstream.Config) { c.MaxConcurrent = 4; c.Breaker.MinRequests = 1000 })
		c := b.claim(t, 4, 10, b.handler(t, nothing))
		c.add(recs(100, ownKey)...)
		elapse(time.Hour)
		require.Equal(t, int32(4), stuck.Load())
		require.Empty(t, c.outcomes)
		close(leave)
		c.idle()
		require.Len(t, c.outcomes, 100)
	})

	bubble(t, "DoesNotKeepTheClaimPastItsGrace", func(t *testing.T) {
		b := newBench(t)
		leave := make(chan struct{})
		b.calls(t, func(context.Context, *record.Record) (any, error) { <-leave; return "late", nil })
		h := b.handler(t, nothing)
		c := newClaim(1, 10, nil)
		var served sync.WaitGroup
		served.Go(func() { c.serve(h) })
		c.add(rec(0, "k"))
		synctest.Wait()
		began := time.Now()
		c.end(time.Second)
		require.Equal(t, time.Second, time.Since(began))
		served.Wait()
		require.Equal(t, 6*time.Second, time.Since(began), "the handler is back a HardGrace later")
		require.Empty(t, c.outcomes)
		close(leave)
	})
}

func TestCall_Shutdown(t *testing.T) {
	t.Parallel()

	bubble(t, "SoftEndBeginsNoCallAndEndsTheWaitForAPlace", func(t *testing.T) {
		b := newBench(t)
		var calls atomic.Int32
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			calls.Add(1)
			return "paid", sleep(ctx, 5*time.Second)
		}, func(c *downstream.Config) { c.MaxConcurrent = 2 })
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(recs(20, ownKey)...)
		elapse(time.Second)
		began := time.Now()
		c.end(10 * time.Second)
		require.Equal(t, 4*time.Second, time.Since(began), "what is under way may finish")
		require.Equal(t, int32(2), calls.Load())
		require.Empty(t, b.topic.letters)
		require.Len(t, c.outcomes, 2, "and their answers are not lost: nobody calls for them again")
	})

	bubble(t, "SoftEndDoesNotWaitForTheCallsOfAnotherClaim", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			return "paid", sleep(ctx, 5*time.Second)
		}, func(c *downstream.Config) { c.MaxConcurrent = 2 })
		h := b.handler(t, nothing)
		busy, ending := b.claim(t, 1, 10, h), b.claim(t, 1, 10, h)
		busy.add(recs(2, ownKey)...)
		synctest.Wait()
		ending.add(recs(5, ownKey)...)
		synctest.Wait()
		began := time.Now()
		ending.end(10 * time.Second)
		require.Zero(t, time.Since(began))
		require.Empty(t, ending.outcomes)
		require.Equal(t, 5, ending.givenBack)
		busy.idle()
		require.Len(t, busy.outcomes, 2)
	})

	bubble(t, "AnswerThatComesAfterASoftEndIsApplied", func(t *testing.T) {
		for _, takes := range []time.Duration{50 * time.Millisecond, time.Second} { // with the lane, and without
			b := newBench(t)
			var calls atomic.Int32
			b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
				calls.Add(1)
				return string(r.Value), sleep(ctx, takes)
			})
			c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
				require.Equal(t, string(m.Payload), record.Of(m.Context()).Reply)
				return nil
			}))
			c.add(recs(4, func(i int) string { return []string{"a", "b"}[i%2] })...) // two of each key
			elapse(takes - time.Millisecond)
			c.end(10 * time.Second)
			require.Equal(t, int32(2), calls.Load(), "those behind them do not call any more")
			require.Len(t, c.outcomes, 2)
			require.Equal(t, record.Effected, c.outcome(0))
			require.Equal(t, record.Effected, c.outcome(1))
		}
	})

	bubble(t, "HardEndCancelsWithItsCause", func(t *testing.T) {
		b := newBench(t)
		var cause log[error]
		var classes log[string]
		b.rt.Hooks.OnAttempt = func(i record.AttemptInfo) { classes.add(i.Class) }
		d := b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			err := sleep(ctx, time.Minute)
			cause.add(err)
			return nil, err
		})
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(recs(30, ownKey)...)
		synctest.Wait()
		c.end(time.Second)
		synctest.Wait()
		require.ErrorIs(t, cause.get()[0], record.ErrRevoked)
		require.Equal(t, "cancelled", classes.get()[0])
		require.Empty(t, c.outcomes)
		require.Equal(t, record.BreakerClosed, d.State(), "it is nobody's failure")
	})
}

// forgetful knows of everything once, and has forgotten it then.
