package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestBreakerTime(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T, d *downstream.Dependency, c *calls)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := dependency(t, "payments", func(c *downstream.Config) {
					c.Breaker = downstream.BreakerConfig{MinRequests: 1, OpenFor: 10 * time.Second}
				})
				test(t, d, newCalls([]spec{{name: "charge", call: &calling{dependency: d}}}))
			})
		})
	}
	hooks := func(c *calls) *record.Hooks { return &record.Hooks{OnCall: c.onCall, OnBreaker: c.onBreaker} }
	outage := func(t *testing.T, d *downstream.Dependency) {
		t.Helper()
		down := fault.Unavailable(errors.New("down"), d.Name())
		require.Error(t, d.Do(t.Context(), func(context.Context) error { return down }))
		require.Equal(t, record.BreakerOpen, d.State())
	}
	recovery := func(t *testing.T, d *downstream.Dependency) {
		t.Helper()
		require.NoError(t, d.Do(t.Context(), func(context.Context) error { return nil }))
		require.Equal(t, record.BreakerClosed, d.State())
	}
	pass := func(d time.Duration) { <-time.After(d) }

	run("CountsWhileItIsOpenAndNotAfterwards", func(t *testing.T, d *downstream.Dependency, c *calls) {
		defer c.watch(hooks(c))()
		pass(time.Minute)
		require.Zero(t, c.find("payments").open())
		outage(t, d)
		pass(15 * time.Second) // half open by now, which is not closed
		require.Equal(t, 15*time.Second, c.find("payments").open())
		recovery(t, d)
		pass(time.Minute)
		require.Equal(t, 15*time.Second, c.find("payments").open())
	})

	run("AddsUpOutages", func(t *testing.T, d *downstream.Dependency, c *calls) {
		defer c.watch(hooks(c))()
		for range 3 {
			outage(t, d)
			pass(20 * time.Second)
			recovery(t, d)
			pass(2 * time.Minute) // the window forgets
		}
		require.Equal(t, time.Minute, c.find("payments").open())
	})

	run("BeginsWithTheConsumerWhereItWasOpenBefore", func(t *testing.T, d *downstream.Dependency, c *calls) {
		outage(t, d)
		pass(5 * time.Second)
		defer c.watch(hooks(c))()
		pass(3 * time.Second)
		require.Equal(t, 3*time.Second, c.find("payments").open())
	})

	run("EndsWithTheConsumer", func(t *testing.T, d *downstream.Dependency, c *calls) {
		stop := c.watch(hooks(c))
		outage(t, d)
		pass(time.Second)
		stop()
		pass(time.Minute)
		require.Equal(t, time.Second, c.find("payments").open())
	})
}
