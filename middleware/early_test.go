package middleware_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// Of one key: a call that fails at once and is tried again, garbage, and a healthy record.
func TestCall_RecordsBehindAnUnreadableOneDoNotOvertakeAFailedCall(t *testing.T) {
	t.Parallel()

	bubble(t, "TheyComeAfterIt", func(t *testing.T) {
		b := newBench(t)
		failed := 0
		b.rt.Decode = func(r *record.Record) error {
			if r.Offset == 1 {
				return errBoom
			}
			r.Event = new(int)
			return nil
		}
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			if r.Offset == 0 && failed < 3 {
				failed++
				return nil, fault.Busy(errBoom)
			}
			return "paid", nil
		})
		c := b.run(t, nothing, rec(0, "a"), rec(1, "a"), rec(2, "a"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, record.Dead, c.outcome(1))
		require.Equal(t, record.Effected, c.outcome(2))
		require.LessOrEqual(t, b.at(0), b.at(1))
		require.LessOrEqual(t, b.at(1), b.at(2))
	})
}
