package downstream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// again is one more call of a record, which fails or is answered.
func again(t *testing.T, d *downstream.Dependency, s *downstream.Streak, failed bool) downstream.Charge {
	t.Helper()
	c, err := d.BeginAgain("route", limit, *s)
	require.NoError(t, err)
	f := fault.Fault{}
	if failed {
		f = transient
	}
	charge := c.End(failed, f)
	*s = c.Streak()
	return charge
}

// A record whose calls fail so fast that nobody is answered during one of them.
func TestStreak(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, err := downstream.New(downstream.Config{Name: "payments"})
				require.NoError(t, err)
				f(t, d)
			})
		})
	}

	bubble("IsChargedOnceOthersAreAnswered", func(t *testing.T, d *downstream.Dependency) {
		var s downstream.Streak
		require.Equal(t, downstream.Free, again(t, d, &s, true))
		require.Equal(t, downstream.Free, again(t, d, &s, true), "nobody was answered")
		succeed(t, d)
		require.Equal(t, downstream.Charged, again(t, d, &s, true))
		require.Equal(t, downstream.Free, again(t, d, &s, true), "one answer is one charge")
	})
	bubble("IsFreeIfOthersBeginToFail", func(t *testing.T, d *downstream.Dependency) {
		var s downstream.Streak
		again(t, d, &s, true)
		succeed(t, d)
		fail(t, d)
		require.Equal(t, downstream.Free, again(t, d, &s, true))
	})
	bubble("AnotherThatFailsOnceMoreIsNoSignOfAnOutage", func(t *testing.T, d *downstream.Dependency) {
		var s, other downstream.Streak
		again(t, d, &s, true)
		again(t, d, &other, true)
		again(t, d, &s, true)
		succeed(t, d)
		again(t, d, &other, true)
		require.Equal(t, downstream.Charged, again(t, d, &s, true))
	})
	bubble("ItsOwnAnswerIsNobodyElses", func(t *testing.T, d *downstream.Dependency) {
		var s downstream.Streak
		again(t, d, &s, true)
		again(t, d, &s, false)
		require.False(t, s.Failed())
		require.Equal(t, downstream.Free, again(t, d, &s, true))
	})
	bubble("AnAnswerAfterAnOutageSaysNothingOfBefore", func(t *testing.T, d *downstream.Dependency) {
		var s downstream.Streak
		again(t, d, &s, true)
		for d.State() == record.BreakerClosed {
			fail(t, d)
		}
		elapse(time.Minute)
		succeed(t, d)
		require.Equal(t, record.BreakerClosed, d.State())
		require.Equal(t, downstream.Free, again(t, d, &s, true))
		succeed(t, d)
		require.Equal(t, downstream.Charged, again(t, d, &s, true))
	})
	bubble("OpensNobodysBreakerWhileOthersAreAnswered", func(t *testing.T, d *downstream.Dependency) {
		var s [4]downstream.Streak
		for i := range 1000 {
			if i%20 == 0 {
				succeed(t, d)
			}
			again(t, d, &s[i%4], true)
			elapse(100 * time.Millisecond)
			require.Equal(t, record.BreakerClosed, d.State(), i)
		}
	})
	bubble("DoesNotOpenAgainWhatAProbeHasClosed", func(t *testing.T, d *downstream.Dependency) {
		var s [30]downstream.Streak
		for i := range s {
			if d.State() == record.BreakerClosed {
				again(t, d, &s[i], true)
			}
		}
		require.Equal(t, record.BreakerOpen, d.State(), "nobody had been answered")
		elapse(31 * time.Second)
		succeed(t, d)
		for i := range 2000 {
			if i%100 == 0 {
				succeed(t, d)
			}
			if s[i%30].Failed() {
				again(t, d, &s[i%30], true)
			}
			elapse(10 * time.Millisecond)
			require.Equal(t, record.BreakerClosed, d.State(), i)
		}
	})
	bubble("OpensItWhenNobodyIsAnsweredAnyMore", func(t *testing.T, d *downstream.Dependency) {
		var s downstream.Streak
		again(t, d, &s, true)
		succeed(t, d)
		elapse(time.Minute)
		for range 20 {
			again(t, d, &s, true)
			elapse(time.Second)
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	bubble("OpensItAtOnceWhenManyBeginToFail", func(t *testing.T, d *downstream.Dependency) {
		succeed(t, d)
		var s [11]downstream.Streak
		for i := range 22 {
			if d.State() == record.BreakerClosed {
				again(t, d, &s[i%11], true)
			}
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	bubble("AProbeCountsAlways", func(t *testing.T, d *downstream.Dependency) {
		var s downstream.Streak
		again(t, d, &s, true)
		for d.State() == record.BreakerClosed {
			fail(t, d)
		}
		elapse(31 * time.Second)
		require.Equal(t, downstream.Outage, again(t, d, &s, true))
		require.Equal(t, record.BreakerOpen, d.State())
	})
}
