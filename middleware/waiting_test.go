package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

func TestWaitingSaysWhy(t *testing.T) {
	t.Parallel()

	// after lets records fail for a while, and gives what the route waits for then.
	after := func(t *testing.T, b *bench, d time.Duration, h message.NoPublishHandlerFunc, rs ...*record.Record) []middleware.Wait {
		t.Helper()
		b.claim(t, 1, 100, b.handler(t, h)).add(rs...)
		elapse(d)
		return b.rt.Waiting()
	}

	bubble(t, "NothingOfARouteThatGoesOn", func(t *testing.T) {
		b := newBench(t)
		require.Empty(t, after(t, b, time.Second, nothing, recs(3, ownKey)...))
	})

	bubble(t, "TheDatabase", func(t *testing.T) {
		b := newBench(t)
		b.in.commit = func([]*record.Record) error { return errors.New("password=hunter2 was refused") }
		waits := after(t, b, time.Minute, nothing, recs(3, ownKey)...)
		require.Len(t, waits, 1)
		require.Equal(t, fault.Database, waits[0].Dependency)
		require.Equal(t, b.began, waits[0].Since)
		require.ErrorContains(t, waits[0].Err, "password=***")
	})

	bubble(t, "TheBreakerOfACall", func(t *testing.T) {
		b := newBench(t)
		b.rt.RedactError = func(error) string { return "as asked" }
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) { return nil, fault.Transient(errLeaky(r)) },
			func(c *downstream.Config) { c.Breaker.MinRequests = 4 })
		waits := after(t, b, 5*time.Second, nothing, recs(50, ownKey)...)
		require.Len(t, waits, 1)
		require.Equal(t, "payments", waits[0].Dependency)
		require.EqualError(t, waits[0].Err, "as asked")
		require.Equal(t, record.BreakerOpen, waits[0].Breaker.To)
		require.Equal(t, 4, waits[0].Breaker.MinRequests)
		require.GreaterOrEqual(t, waits[0].Breaker.Failures, 4)
		require.EqualError(t, waits[0].Breaker.Err, "as asked")
	})

	bubble(t, "ABreakerThatOthersHaveOpenedByTheRoutesRedactError", func(t *testing.T) {
		b := newBench(t)
		b.rt.RedactError = func(error) string { return "as asked" }
		d := b.calls(t, paid, func(c *downstream.Config) { c.Breaker.MinRequests = 1 })
		require.Error(t, d.Do(t.Context(), func(context.Context) error { return fault.Transient(errBoom) }))
		waits := after(t, b, time.Second, nothing, rec(0, "k"))
		require.EqualError(t, waits[0].Err, "as asked")
		require.EqualError(t, waits[0].Breaker.Err, "as asked")
	})

	bubble(t, "CallsThatFailWhileNobodyIsAnswered", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) { return nil, fault.Transient(errLeaky(r)) },
			func(c *downstream.Config) {
				c.Breaker.Trip = func(downstream.BreakerCounts) bool { return false }
				c.MaxConcurrent, c.Breaker.MinRequests = 4, 2
			})
		waits := after(t, b, 5*time.Second, nothing, recs(50, func(i int) string { return fmt.Sprintf("customer-%d", i) })...)
		require.Len(t, waits, 1)
		require.EqualError(t, waits[0].Err, leakyText)
		require.Empty(t, waits[0].Breaker.To)
	})

	bubble(t, "TheDeadLetterTopic", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(context.Context, dlq.Letter) error { return errors.New("TOPIC_AUTHORIZATION_FAILED") }
		waits := after(t, b, time.Minute, func(*message.Message) error { return errBoom }, rec(0, "k"))
		require.Len(t, waits, 1)
		require.Equal(t, fault.DeadLetterTopic, waits[0].Dependency)
		require.EqualError(t, waits[0].Err, "TOPIC_AUTHORIZATION_FAILED")
		require.EqualError(t, b.holds.get()[0].Err, "TOPIC_AUTHORIZATION_FAILED", "and not what the record died of")
	})

	bubble(t, "AThousandLettersThatAreTooLarge", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(context.Context, dlq.Letter) error { return dlq.ErrTooLarge }
		waits := after(t, b, time.Minute, func(*message.Message) error { return errBoom }, recs(3000, ownKey)...)
		require.Len(t, waits, 1)
		require.ErrorIs(t, waits[0].Err, dlq.ErrTooLarge)
	})

	bubble(t, "TheFloodGuard", func(t *testing.T) {
		b := newBench(t)
		b.rt.Flood = middleware.NewFloodGuard(middleware.FloodConfig{Run: 1})
		waits := after(t, b, time.Second, func(m *message.Message) error { return errLeaky(record.Of(m.Context())) },
			rec(0, "customer-4711"), rec(1, "customer-4712"))
		require.Len(t, waits, 1)
		require.Equal(t, middleware.Flood, waits[0].Dependency)
		require.Equal(t, middleware.Partition{Topic: "orders"}, waits[0].Partition)
		require.EqualError(t, waits[0].Err, leakyText)
		require.EqualError(t, b.holds.get()[0].Err, leakyText)
		require.Equal(t, "permanent", b.holds.get()[0].Class)
	})

	bubble(t, "ARetryAfter", func(t *testing.T) {
		b := newBench(t)
		waits := after(t, b, time.Second, func(m *message.Message) error {
			return fault.RetryAfter(errLeaky(record.Of(m.Context())), time.Hour)
		}, rec(0, "customer-4711"))
		require.Len(t, waits, 1)
		require.Equal(t, middleware.RetryAfter, waits[0].Dependency)
		require.EqualError(t, waits[0].Err, leakyText)
	})
}
