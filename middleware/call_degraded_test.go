package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestCall_Degraded(t *testing.T) {
	t.Parallel()
	// quoted is a call that reads a rate, and goes on with 1 when it cannot.
	quoted := func(t *testing.T, b *bench, down func() bool) *downstream.Dependency {
		t.Helper()
		var f *downstream.Fallback[string]
		d := b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			got, err := f.Get(ctx, "EUR", func(context.Context) (string, error) {
				if down() {
					return "", fault.Transient(errBoom)
				}
				return "1.08", nil
			})
			return got.Value, err
		})
		var err error
		f, err = downstream.NewFallback(d, downstream.FallbackConfig[string]{
			Operation: "rate", Default: func(string) (string, bool) { return "1", true },
		})
		require.NoError(t, err)
		return d
	}

	bubble(t, "ItsRecordGoesOnAndTheBreakerHearsOfIt", func(t *testing.T) {
		b := newBench(t)
		d := quoted(t, b, func() bool { return true })
		c := b.run(t, nothing, recs(20, ownKey)...)
		require.Len(t, c.outcomes, 20)
		for offset := range c.outcomes {
			require.Equal(t, record.Effected, c.outcome(offset))
		}
		require.Equal(t, record.BreakerOpen, d.State())
		require.Zero(t, d.Answers(), "a substitute is no answer")
	})

	bubble(t, "WhereItIsForbiddenTheRecordWaits", func(t *testing.T) {
		b := newBench(t)
		began := time.Now()
		quoted(t, b, func() bool { return time.Since(began) < time.Minute })
		b.rt.Call.NoFallback = true
		c := b.run(t, nothing, recs(20, ownKey)...)
		require.Len(t, c.outcomes, 20)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
	})
}
