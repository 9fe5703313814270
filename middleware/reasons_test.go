package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// errLeaky names a password, and the key of the record that failed with it.
func errLeaky(r *record.Record) error {
	return fmt.Errorf("dial postgres://app:hunter2@db-7.internal/orders for %s: connection refused", r.Key)
}

// leakyText is what may be kept of it.
const leakyText = "dial postgres://***@db-7.internal/orders for [key]: connection refused"

// for a minute from now on.
func forAMinute(b *bench) func() bool {
	return func() bool { return time.Since(b.began) < time.Minute }
}

func TestHoldSaysWhy(t *testing.T) {
	t.Parallel()

	bubble(t, "WithTheFailureAtItsBeginningAndAtItsEnd", func(t *testing.T) {
		b := newBench(t)
		down := forAMinute(b)
		b.run(t, func(m *message.Message) error {
			if down() {
				return fault.Unavailable(errLeaky(record.Of(m.Context())), "shipping")
			}
			return nil
		}, rec(0, "customer-4711"))
		synctest.Wait() // a record is settled before its hold ends
		holds := b.holds.get()
		require.Len(t, holds, 2)
		for _, i := range holds {
			require.Equal(t, "unavailable", i.Class)
			require.EqualError(t, i.Err, leakyText)
		}
	})

	bubble(t, "InTheWordsOfRedactError", func(t *testing.T) {
		b := newBench(t)
		down := forAMinute(b)
		b.rt.RedactError = func(error) string { return "away, token=hunter2" }
		b.run(t, func(m *message.Message) error {
			if down() {
				return fault.Unavailable(errLeaky(record.Of(m.Context())), "shipping")
			}
			return nil
		}, rec(0, "customer-4711"))
		require.EqualError(t, b.holds.get()[0].Err, "away, token=***")
	})

	bubble(t, "OfRecordsThatComeToAShutGateByWhatShutIt", func(t *testing.T) {
		b := newBench(t)
		down := forAMinute(b)
		b.run(t, func(*message.Message) error {
			if down() {
				b.rt.Gates.Get("shipping").DownBecause(time.Now().Add(time.Minute), errors.New("no route to host"))
				return fault.Transient(errBoom) // and is tried again once it is let through
			}
			return nil
		}, rec(0, "k"))
		first := b.holds.get()[0]
		require.Equal(t, "shipping", first.Dependency)
		require.Empty(t, first.Class)
		require.EqualError(t, first.Err, "no route to host")
	})

	bubble(t, "OfACallByWhatOpenedTheBreakerAndNotByItsRefusal", func(t *testing.T) {
		b := newBench(t)
		down := forAMinute(b)
		var opened log[record.BreakerInfo]
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			if down() {
				return nil, fault.Transient(errLeaky(r))
			}
			return "paid", nil
		}, func(c *downstream.Config) {
			c.Breaker = downstream.BreakerConfig{MinRequests: 4, OpenFor: time.Second}
			c.Hooks = &record.Hooks{OnBreaker: opened.add}
		})
		b.run(t, nothing, recs(50, func(i int) string { return fmt.Sprintf("customer-%d", i) })...)
		require.NotEmpty(t, b.holds.get())
		for _, i := range b.holds.get() {
			require.EqualError(t, i.Err, leakyText)
		}
		require.EqualError(t, opened.get()[0].Err, leakyText)
	})

	bubble(t, "OfASubstituteByTheFailureBehindIt", func(t *testing.T) {
		b := newBench(t)
		var opened log[record.BreakerInfo]
		var f *downstream.Fallback[string]
		d := b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			got, err := f.Get(ctx, "EUR", func(context.Context) (string, error) { return "", fault.Transient(errLeaky(r)) })
			return got.Value, err
		}, func(c *downstream.Config) { c.Hooks = &record.Hooks{OnBreaker: opened.add} })
		var err error
		f, err = downstream.NewFallback(d, downstream.FallbackConfig[string]{
			Operation: "rate", Default: func(string) (string, bool) { return "1", true },
		})
		require.NoError(t, err)
		b.run(t, nothing, recs(30, func(i int) string { return fmt.Sprintf("customer-%d", i) })...)
		require.EqualError(t, opened.get()[0].Err, leakyText)
	})
}
