package downstream_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestAdmission(t *testing.T) {
	t.Parallel()
	// call makes one that takes took, with left to do it.
	call := func(t *testing.T, d *downstream.Dependency, left, took time.Duration) error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), left)
		defer cancel()
		return d.Do(ctx, func(ctx context.Context) error { elapse(took); return ctx.Err() })
	}
	bubble := func(name string, normal time.Duration, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f(t, payments(t, func(c *downstream.Config) { c.NormalTime = normal }))
			})
		})
	}

	bubble("LessThanTheNormalTimeIsNotBegun", time.Second, func(t *testing.T, d *downstream.Dependency) {
		require.NoError(t, call(t, d, time.Second, 0))
		err := call(t, d, 900*time.Millisecond, 0)
		require.ErrorIs(t, err, fault.ErrNoTime)
		require.ErrorContains(t, err, "900ms left, and it normally takes up to 1s")
		require.Equal(t, fault.ClassTransient, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
		require.NoError(t, d.Do(t.Context(), func(context.Context) error { return nil }), "no deadline is enough")
		for range 10 {
			require.Error(t, call(t, d, time.Millisecond, 0))
		}
		require.Equal(t, record.BreakerClosed, d.State(), "it says nothing of the dependency")
	})
	bubble("AnyTimeIsEnough", 0, func(t *testing.T, d *downstream.Dependency) {
		require.NoError(t, call(t, d, time.Millisecond, 0))
	})
	bubble("MeasuredItIsThe99thOf100", downstream.Measured, func(t *testing.T, d *downstream.Dependency) {
		require.NoError(t, call(t, d, time.Minute, 5*time.Second))
		for range 98 {
			require.NoError(t, call(t, d, time.Minute, 10*time.Millisecond))
		}
		require.NoError(t, call(t, d, 6*time.Millisecond, time.Millisecond), "99 say nothing yet")
		require.ErrorIs(t, call(t, d, 9*time.Millisecond, 0), fault.ErrNoTime)
		require.NoError(t, call(t, d, 11*time.Millisecond, 0), "one in 100 may take longer")
		elapse(time.Minute)
		require.NoError(t, call(t, d, 9*time.Millisecond, 0), "it is forgotten")
	})
	t.Run("MeasuredItIsNeverMoreThanATry", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := payments(t, func(c *downstream.Config) { c.NormalTime, c.MaxConcurrent = downstream.Measured, 100 })
			for range 100 {
				go func() {
					_ = d.Do(context.WithoutCancel(t.Context()), func(context.Context) error { <-time.After(14 * time.Second); return nil })
				}()
			}
			elapse(15 * time.Second)
			require.NoError(t, call(t, d, d.Config().Timeout, 0))
			require.ErrorIs(t, call(t, d, d.Config().Timeout-time.Second, 0), fault.ErrNoTime)
		})
	})
}
