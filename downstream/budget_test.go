package downstream_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, r := range []struct {
		name                      string
		around, want, reserve, is time.Duration // around 0: none; is 0: refused
	}{
		{"WhatItWants", 10 * s, 3 * s, 2 * s, 3 * s},
		{"WhatIsLeft", 10 * s, 9 * s, 2 * s, 8 * s},
		{"AllThatIsLeft", 10 * s, 0, 2 * s, 8 * s},
		{"NoDeadlineAround", 0, 3 * s, 2 * s, 3 * s},
		{"NothingIsLeft", 2 * s, 3 * s, 2 * s, 0},
		{"LessThanTheReserveIsLeft", s, 3 * s, 2 * s, 0},
		{"ANegativeReserveIsNone", s, 3 * s, -2 * s, s},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if r.around > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), r.around)
				}
				defer cancel()
				child, end, err := downstream.Budget(ctx, r.want, r.reserve)
				if r.is == 0 {
					require.ErrorIs(t, err, fault.ErrNoTime)
					return
				}
				require.NoError(t, err)
				defer end()
				began := time.Now()
				<-child.Done()
				require.Equal(t, r.is, time.Since(began))
				if r.is == r.around { // the deadline around came first, or as well
					return
				}
				cause := context.Cause(child)
				var timeout net.Error
				require.ErrorIs(t, cause, context.DeadlineExceeded)
				require.ErrorAs(t, cause, &timeout)
				require.True(t, timeout.Timeout())
				require.Equal(t, "no answer within "+r.is.String(), cause.Error())
				require.Equal(t, fault.ClassAmbiguous, new(fault.Classifier).ClassifyCall(t.Context(), cause).Class)
			})
		})
	}

	t.Run("OneThatIsRefusedSaysTheNumbersAndIsNoDependencysFault", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			_, _, err := downstream.Budget(ctx, 10*time.Second, 2*time.Second)
			require.ErrorContains(t, err, "1.5s left, 2s of it in reserve")
			require.Equal(t,
				fault.Fault{Class: fault.ClassTransient, Rule: "no time left"}, new(fault.Classifier).ClassifyCall(ctx, err))
			var told []record.CallInfo
			d := payments(t, func(c *downstream.Config) {
				c.Hooks = &record.Hooks{OnCall: func(i record.CallInfo) { told = append(told, i) }}
			})
			for range 10 {
				require.ErrorIs(t, d.Do(ctx, func(context.Context) error { return err }), err)
			}
			require.Equal(t, record.BreakerClosed, d.State())
			require.Equal(t, record.CallRefused, told[0].Outcome)
		})
	})
	t.Run("WithoutAnyTimeAtAllItOnlyEndsWithTheContextAround", func(t *testing.T) {
		t.Parallel()
		child, end, err := downstream.Budget(t.Context(), 0, time.Second)
		require.NoError(t, err)
		defer end()
		_, bounded := child.Deadline()
		require.False(t, bounded)
	})
}

func TestBulkhead(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency, release func())) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := payments(t, func(c *downstream.Config) { c.MaxConcurrent = 1 })
				release, ok := d.Acquire(t.Context(), nil)
				require.True(t, ok)
				f(t, d, release)
			})
		})
	}
	// queue waits for a place on a goroutine of its own.
	queue := func(ctx context.Context, d *downstream.Dependency, soft <-chan struct{}, f func(release func(), ok bool)) {
		go func() { f(d.Acquire(ctx, soft)) }()
		synctest.Wait()
	}

	bubble("InOrderOfArrival", func(t *testing.T, d *downstream.Dependency, release func()) {
		var order log[int]
		for i := range 5 {
			queue(t.Context(), d, nil, func(release func(), _ bool) {
				order.add(i)
				release()
			})
		}
		require.Empty(t, order.get())
		release()
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, order.get())
	})
	bubble("OneThatLeavesTakesNobodysPlace", func(t *testing.T, d *downstream.Dependency, release func()) {
		var got log[bool]
		note := func(release func(), ok bool) {
			got.add(ok)
			if ok {
				release()
			}
		}
		soft := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		queue(t.Context(), d, soft, note)
		queue(ctx, d, nil, note)
		queue(t.Context(), d, nil, note)
		close(soft)
		cancel()
		synctest.Wait()
		require.Equal(t, []bool{false, false}, got.get())
		release()
		synctest.Wait()
		require.Equal(t, []bool{false, false, true}, got.get())
	})
	bubble("APlaceThatComesWithTheEndIsPassedOn", func(t *testing.T, d *downstream.Dependency, release func()) {
		for range 100 {
			soft := make(chan struct{})
			left := make(chan func(), 1)
			queue(t.Context(), d, soft, func(release func(), ok bool) {
				if !ok {
					release = func() {}
				}
				left <- release
			})
			go close(soft)
			release()
			(<-left)()
			synctest.Wait()
			var ok bool
			release, ok = d.Acquire(t.Context(), nil)
			require.True(t, ok)
		}
	})
	bubble("ReleasedTwiceItIsOnePlace", func(t *testing.T, d *downstream.Dependency, release func()) {
		release()
		release()
		_, ok := d.Acquire(t.Context(), nil)
		require.True(t, ok)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, ok = d.Acquire(ended, nil)
		require.False(t, ok)
	})
}

func TestConfigIsProven(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name string
		cfg  downstream.Config
		says string
	}{
		{"NoName", downstream.Config{}, "Config.Name is empty"},
		{"ANameOfOurs", downstream.Config{Name: fault.Database}, "take another"},
		{"ARatioOfNothing", downstream.Config{Name: "p", Breaker: downstream.BreakerConfig{FailureRatio: 1.5}}, "FailureRatio (1.5)"},
		{"NegativeRequests", downstream.Config{Name: "p", Breaker: downstream.BreakerConfig{MinRequests: -1}}, "MinRequests (-1)"},
		{"NegativeWindow", downstream.Config{Name: "p", Breaker: downstream.BreakerConfig{Window: -1}}, "Window (-1ns)"},
		{"NegativeOpenFor", downstream.Config{Name: "p", Breaker: downstream.BreakerConfig{OpenFor: -1}}, "OpenFor (-1ns)"},
		{"NoPlaces", downstream.Config{Name: "p", MaxConcurrent: -1}, "MaxConcurrent (-1)"},
		{"NoAttempts", downstream.Config{Name: "p", Retry: downstream.RetryConfig{Attempts: -1}}, "Retry.Attempts (-1)"},
		{"MoreAttemptsThanMemoryIsFor", downstream.Config{Name: "p", Retry: downstream.RetryConfig{Attempts: 6}}, "fault.Park"},
		{"NegativeKeyRetention", downstream.Config{Name: "p", KeyRetention: -1}, "KeyRetention (-1ns)"},
		{"NegativeNormalTime", downstream.Config{Name: "p", NormalTime: -2}, "NormalTime (-2ns)"},
		{"ANormalTimeThatNoTryHas", downstream.Config{Name: "p", NormalTime: time.Minute}, "NormalTime (1m0s) must not exceed Timeout (10s)"},
		{"NoHeader", downstream.Config{Name: "p", DeadlineHeader: "time left"}, `DeadlineHeader ("time left")`},
		{
			"AStepLongerThanTheWindow",
			downstream.Config{Name: "p", Breaker: downstream.BreakerConfig{BucketPeriod: time.Hour}},
			"Breaker.BucketPeriod (1h0m0s)",
		},
		{
			"BackOffsLongerThanTheWindow",
			downstream.Config{Name: "p", Retry: downstream.RetryConfig{Base: 40 * time.Second}},
			"Breaker.Window (1m0s) must be longer than the 2 back-offs of one series, 1m20s",
		},
		{
			"CallsLongerThanTheWindow",
			downstream.Config{Name: "p", Timeout: time.Minute},
			"Breaker.Window (1m0s) must be at least twice Timeout (1m0s)",
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			_, err := downstream.New(r.cfg)
			require.ErrorContains(t, err, r.says)
		})
	}
	t.Run("ASmallWindowHasAShorterTimeout", func(t *testing.T) {
		t.Parallel()
		d, err := downstream.New(downstream.Config{Name: "p", Breaker: downstream.BreakerConfig{Window: time.Second}})
		require.NoError(t, err)
		require.Equal(t, 500*time.Millisecond, d.Config().Timeout)
	})
}
