package middleware_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestCall_WithinACall(t *testing.T) {
	t.Parallel()

	// A fraud check that was down took the records with it that asked it, because payments was well.
	bubble(t, "AnotherDependencysOutageKillsNobody", func(t *testing.T) {
		b := newBench(t)
		check, err := downstream.New(downstream.Config{Name: "fraud", RefuseInTransaction: true})
		require.NoError(t, err)
		began := time.Now()
		d := b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if r.Offset != 0 {
				return "paid", sleep(ctx, 100*time.Millisecond)
			}
			if err := sleep(ctx, 200*time.Millisecond); err != nil {
				return nil, err
			}
			return "paid", check.Do(ctx, func(context.Context) error {
				if time.Since(began) < 5*time.Minute {
					return fault.Ambiguous(errBoom)
				}
				return nil
			})
		})
		rs := []*record.Record{rec(0, "a")}
		for i := range 600 {
			rs = append(rs, rec(int64(i+1), "b"))
		}
		c := b.run(t, nothing, rs...)
		require.Equal(t, record.Effected, c.outcome(0))
		require.Len(t, c.outcomes, 601)
		require.Equal(t, "closed", d.State())
	})

	// 99,785 calls in 45s, each refused by the breaker whose probe it was.
	bubble(t, "WithoutItsContextIsNoStorm", func(t *testing.T) {
		b := newBench(t)
		var d *downstream.Dependency
		var tries, refused atomic.Int64
		d = b.calls(t, func(context.Context, *record.Record) (any, error) {
			tries.Add(1)
			err := d.Do(context.Background(), func(context.Context) error { return nil })
			if err != nil {
				refused.Add(1)
			}
			return "paid", err
		})
		for range 20 {
			c, err := d.Begin(time.Minute)
			require.NoError(t, err)
			c.End(true, fault.Fault{Class: fault.ClassTransient})
		}
		require.Equal(t, "open", d.State())
		c := b.claim(t, 2, 500, b.handler(t, nothing))
		c.add(rec(0, "a"), rec(1, "b"))
		elapse(10 * time.Minute)
		c.end(10 * time.Second)
		require.Positive(t, refused.Load())
		require.LessOrEqual(t, tries.Load(), int64(21), "one in each 30s")
		require.Contains(t, b.reports.kinds(), record.ReportCallWithoutContext)
	})
}

// A year's Retry-After of a 401 was waited for, whatever the route's MaxHold was.
func TestCall_RefusedCredentialsAreTriedAgainAfterMaxHold(t *testing.T) {
	t.Parallel()
	bubble(t, "AYear", func(t *testing.T) {
		b := newBench(t)
		b.rt.Retry.MaxHold = time.Minute
		began := time.Now()
		b.calls(t, func(context.Context, *record.Record) (any, error) {
			if time.Since(began) < time.Second {
				return nil, &fault.StatusError{Code: 401, RetryAfter: 365 * 24 * time.Hour, Dependency: "payments"}
			}
			return "paid", nil
		})
		c := b.run(t, nothing, rec(0, "a"), rec(1, "b"))
		require.Len(t, c.outcomes, 2)
		require.LessOrEqual(t, time.Since(began), time.Minute+10*time.Second)
	})
}
