package downstream_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// told gives a dependency's changes of state.
func told(c *downstream.Config) *[]record.BreakerInfo {
	all := new([]record.BreakerInfo)
	c.Hooks = &record.Hooks{OnBreaker: func(i record.BreakerInfo) { *all = append(*all, i) }}
	return all
}

func TestBreakerSaysWhyItOpens(t *testing.T) {
	t.Parallel()

	t.Run("WithTheLastFailureAndTheCountsOfItsWindow", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var infos *[]record.BreakerInfo
			d := payments(t, func(c *downstream.Config) { infos = told(c) })
			_, _, open := d.Opened()
			require.False(t, open)
			require.NoError(t, d.Gate().Why())
			succeed(t, d)
			for _, why := range []string{"connection refused", "timeout", "500 of postgres://app:hunter2@db/orders"} {
				begin(t, d).Fail(transient, errors.New(why))
			}
			require.Len(t, *infos, 1)
			opened := (*infos)[0]
			require.EqualError(t, opened.Err, "500 of postgres://***@db/orders", "the last one, without its password")
			opened.Err = nil
			require.Equal(t, record.BreakerInfo{
				Dependency: "payments", From: record.BreakerClosed, To: record.BreakerOpen,
				Failures: 3, Requests: 4, MinRequests: 4, FailureRatio: 0.5, Window: time.Minute,
			}, opened)
			began := time.Now()
			info, at, open := d.Opened()
			require.True(t, open)
			require.Equal(t, began, at)
			require.Equal(t, (*infos)[0], info)
			require.Same(t, info.Err, d.Gate().Why(), "what waits at the gate waits for that")

			elapse(openFor + time.Second)
			begin(t, d).Fail(transient, errors.New("no such host"))
			probed := (*infos)[len(*infos)-1]
			require.EqualError(t, probed.Err, "no such host")
			require.Zero(t, probed.Requests, "one call says nothing of a window")
			info, at, open = d.Opened()
			require.True(t, open)
			require.Equal(t, began, at, "it has not been closed since")
			require.EqualError(t, info.Err, "no such host")
			require.Equal(t, 3, info.Failures)
			require.EqualError(t, d.Gate().Why(), "no such host")

			elapse(openFor + time.Second)
			succeed(t, d)
			require.NoError(t, (*infos)[len(*infos)-1].Err)
			_, _, open = d.Opened()
			require.False(t, open)
			require.NoError(t, d.Gate().Why())
		})
	})

	t.Run("WithoutAThresholdWhereTripDecides", func(t *testing.T) {
		t.Parallel()
		var infos *[]record.BreakerInfo
		d := payments(t, func(c *downstream.Config) {
			infos = told(c)
			c.Breaker.Trip = func(n downstream.BreakerCounts) bool { return n.InARow == 2 }
		})
		fail(t, d)
		fail(t, d)
		require.Len(t, *infos, 1)
		require.NoError(t, (*infos)[0].Err, "nobody said why")
		require.Equal(t, 2, (*infos)[0].Failures)
		require.Zero(t, (*infos)[0].MinRequests)
		require.Zero(t, (*infos)[0].FailureRatio)
	})

	t.Run("OfCallsThatNeverEnd", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var infos *[]record.BreakerInfo
			d := payments(t, func(c *downstream.Config) { infos = told(c) })
			for range 4 {
				begin(t, d)
			}
			elapse(limit + time.Second)
			require.EqualError(t, (*infos)[0].Err, "no end of the call within 15s")
		})
	})

	t.Run("WhateverTheWayOfTheCall", func(t *testing.T) {
		t.Parallel()
		down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
		t.Cleanup(down.Close)
		errAway := fault.Transient(errors.New("away"))
		for name, c := range map[string]struct {
			call func(ctx context.Context, d *downstream.Dependency)
			want string
		}{
			"Do": {func(ctx context.Context, d *downstream.Dependency) {
				_ = d.Do(ctx, func(context.Context) error { return errAway })
			}, "away"},
			"Run": {func(ctx context.Context, d *downstream.Dependency) {
				_, _ = downstream.Run(ctx, d, downstream.Operation[int]{Do: func(context.Context, downstream.Try) (int, error) { return 0, errAway }})
			}, "away"},
			"Transport": {func(ctx context.Context, d *downstream.Dependency) {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, down.URL+"?card=4111", http.NoBody)
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: d.Transport(nil)}).Do(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}, "500"},
		} {
			var infos *[]record.BreakerInfo
			d := payments(t, func(c *downstream.Config) {
				infos = told(c)
				c.Retry.Attempts = 1
			})
			for range 4 {
				c.call(t.Context(), d)
			}
			require.Len(t, *infos, 1, name)
			require.ErrorContains(t, (*infos)[0].Err, c.want, name)
			require.NotContains(t, (*infos)[0].Err.Error(), "4111", name)
		}
	})
}

func TestBreakerSaysNothingOfTheRecordThatCalled(t *testing.T) {
	t.Parallel()
	r := &record.Record{Key: []byte("customer-4711"), Value: []byte(`{"card":4111}`)}
	errQuotes := fault.Transient(errors.New(`refused for customer-4711: {"card":4111}, token=hunter2`))
	var infos *[]record.BreakerInfo
	d := payments(t, func(c *downstream.Config) { infos = told(c) })
	for range 4 {
		require.ErrorIs(t, d.Do(record.With(t.Context(), r), func(context.Context) error { return errQuotes }), errQuotes)
	}
	require.EqualError(t, (*infos)[0].Err, "refused for [key]: [value], token=***")
	require.ErrorIs(t, (*infos)[0].Err, errQuotes)
}

func TestGateSaysWhyItIsShut(t *testing.T) {
	t.Parallel()

	t.Run("ByTheFirstFailureAndThenByTheProbes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			g := downstream.NewGate(downstream.GateConfig{Name: "database", Base: time.Second})
			first, _ := g.TryEnter()
			beside, _ := g.TryEnter()
			first.FailedBecause(time.Time{}, errors.New("connection refused"))
			beside.FailedBecause(time.Time{}, errors.New("connection reset"))
			require.EqualError(t, g.Why(), "connection refused", "it went down with the first")
			probe, ok := g.Enter(t.Context(), nil)
			require.True(t, ok)
			probe.Failed()
			require.EqualError(t, g.Why(), "connection refused", "a probe without a word takes none away")
			probe, ok = g.Enter(t.Context(), nil)
			require.True(t, ok)
			probe.FailedBecause(time.Time{}, errors.New("the database system is starting up"))
			require.EqualError(t, g.Why(), "the database system is starting up")
			probe, ok = g.Enter(t.Context(), nil)
			require.True(t, ok)
			probe.OK()
			require.NoError(t, g.Why())
			g.Down(time.Time{})
			require.NoError(t, g.Why(), "of the time before")
		})
	})

	t.Run("AlsoWhereTheBreakerIsClosed", func(t *testing.T) {
		t.Parallel()
		d := payments(t)
		begin(t, d).Fail(fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments"}, errors.New("401: token=hunter2 has expired"))
		require.Equal(t, record.BreakerClosed, d.State())
		_, shut := d.Gate().Since()
		require.True(t, shut)
		require.EqualError(t, d.Gate().Why(), "401: token=*** has expired")
	})
}
