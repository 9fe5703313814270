package downstream_test

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

// rates is a service that is read, up or down.
type rates struct{ err error }

func (r *rates) read(context.Context) (string, error) {
	if r.err != nil {
		return "", r.err
	}
	return "1.08", nil
}

func fallback(t *testing.T, d *downstream.Dependency, change ...func(*downstream.FallbackConfig[string])) *downstream.Fallback[string] {
	t.Helper()
	cfg := downstream.FallbackConfig[string]{Operation: "rate"}
	for _, f := range change {
		f(&cfg)
	}
	f, err := downstream.NewFallback(d, cfg)
	require.NoError(t, err)
	return f
}

func TestFallback(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t)) })
		})
	}
	whole := func(c *downstream.FallbackConfig[string]) {
		c.Partial = func(_ context.Context, key string) (string, bool) { return "about 1", key == "EUR" }
		c.Default = func(key string) (string, bool) { return "0", key != "none" }
	}

	bubble("AFreshValueSaysNothing", func(t *testing.T, d *downstream.Dependency) {
		got, err := fallback(t, d, whole).Get(t.Context(), "EUR", new(rates).read)
		require.NoError(t, err)
		require.Equal(t, downstream.Read[string]{Value: "1.08"}, got)
	})
	bubble("TheLastKnownValueHasItsAge", func(t *testing.T, d *downstream.Dependency) {
		f, service := fallback(t, d, whole), &rates{}
		_, err := f.Get(t.Context(), "EUR", service.read)
		require.NoError(t, err)
		service.err = errDown
		elapse(time.Minute)
		got, err := f.Get(t.Context(), "EUR", service.read)
		require.NoError(t, err)
		require.Equal(t, "1.08", got.Value)
		require.Equal(t, record.DegradedLastKnown, got.Degraded.Source)
		require.ErrorIs(t, got.Degraded.Reason, errDown)
		require.GreaterOrEqual(t, got.Degraded.Age, time.Minute)
	})
	bubble("ThenAPartThenADefaultThenTheFailure", func(t *testing.T, d *downstream.Dependency) {
		f, down := fallback(t, d, whole), &rates{err: errDown}
		for key, source := range map[string]string{"EUR": record.DegradedPartial, "USD": record.DegradedDefault} {
			got, err := f.Get(t.Context(), key, down.read)
			require.NoError(t, err)
			require.Equal(t, source, got.Degraded.Source)
			require.Zero(t, got.Degraded.Age)
		}
		_, err := f.Get(t.Context(), "none", down.read)
		require.ErrorIs(t, err, errDown)
	})
	bubble("WhatIsTooOldIsNotGiven", func(t *testing.T, d *downstream.Dependency) {
		f, service := fallback(t, d), &rates{}
		_, err := f.Get(t.Context(), "EUR", service.read)
		require.NoError(t, err)
		elapse(5*time.Minute + time.Second)
		service.err = errDown
		_, err = f.Get(t.Context(), "EUR", service.read)
		require.ErrorIs(t, err, errDown)
	})
	bubble("WhatWasUsedLongestAgoIsForgottenFirst", func(t *testing.T, d *downstream.Dependency) {
		f := fallback(t, d, func(c *downstream.FallbackConfig[string]) { c.MaxEntries = 2 })
		for _, key := range []string{"EUR", "USD", "EUR", "GBP"} {
			_, err := f.Get(t.Context(), key, new(rates).read)
			require.NoError(t, err)
		}
		down := &rates{err: errDown}
		_, err := f.Get(t.Context(), "EUR", down.read)
		require.NoError(t, err)
		_, err = f.Get(t.Context(), "USD", down.read)
		require.ErrorIs(t, err, errDown)
	})
	bubble("AnOpenBreakerDegradesToo", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		got, err := fallback(t, d, whole).Get(t.Context(), "USD", new(rates).read)
		require.NoError(t, err)
		require.ErrorIs(t, got.Degraded.Reason, fault.ErrBreakerOpen)
	})
	bubble("AnAnswerDoesNot", func(t *testing.T, d *downstream.Dependency) {
		f := fallback(t, d, whole)
		for _, err := range []error{
			&fault.StatusError{Code: 404, Method: "GET"}, errors.New("a bug"), fault.Permanent(errDown),
		} {
			_, got := f.Get(t.Context(), "EUR", (&rates{err: err}).read)
			require.ErrorIs(t, got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := f.Get(ctx, "EUR", func(context.Context) (string, error) { cancel(); return "", errDown })
		require.ErrorIs(t, err, errDown, "nobody is there for a substitute")
	})
	bubble("NeverWhereItIsForbidden", func(t *testing.T, d *downstream.Dependency) {
		f, down := fallback(t, d, whole), &rates{err: errDown}
		_, err := f.Get(downstream.WithoutFallback(t.Context()), "EUR", down.read)
		require.ErrorIs(t, err, errDown)
		_, err = f.Get(downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d, NoFallback: true}), "EUR", down.read)
		require.ErrorIs(t, err, errDown)
	})
	bubble("NeverWithinADoWhoseBreakerWouldTakeItForAnAnswer", func(t *testing.T, d *downstream.Dependency) {
		f, down := fallback(t, d, whole), &rates{err: errDown}
		for range 4 {
			err := d.Do(t.Context(), func(ctx context.Context) error {
				_, err := f.Get(ctx, "EUR", down.read)
				return err
			})
			require.ErrorIs(t, err, errDown)
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	bubble("TheBreakerHearsOfTheFailure", func(t *testing.T, d *downstream.Dependency) {
		f, down := fallback(t, d, whole), &rates{err: errDown}
		for range 4 {
			_, err := f.Get(t.Context(), "EUR", down.read)
			require.NoError(t, err)
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	bubble("InARouteThePermitKnows", func(t *testing.T, d *downstream.Dependency) {
		ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d, Route: "charge"})
		_, degraded := downstream.DegradedBy(ctx)
		require.False(t, degraded)
		_, err := fallback(t, d, whole).Get(ctx, "EUR", (&rates{err: errDown}).read)
		require.NoError(t, err)
		f, degraded := downstream.DegradedBy(ctx)
		require.True(t, degraded)
		require.Equal(t, fault.SaysDown, f.Evidence("payments"))
	})
	bubble("EachIsCountedAndTheFirstIsReported", func(t *testing.T, d *downstream.Dependency) {
		var counted []record.DegradedInfo
		var told []record.Report
		d.Observe(&record.Hooks{
			OnDegraded: func(i record.DegradedInfo) { counted = append(counted, i) },
			OnReport:   func(r record.Report) { told = append(told, r) },
		})
		f, service := fallback(t, d, whole), &rates{err: errDown}
		get := func() {
			_, err := f.Get(t.Context(), "EUR", service.read)
			require.NoError(t, err)
		}
		get()
		get()
		require.Len(t, counted, 2)
		require.Equal(t, record.DegradedInfo{
			Dependency: "payments", Operation: "rate", Source: record.DegradedPartial, Reason: record.DegradedFailed,
		}, counted[0])
		require.Len(t, told, 1)
		require.Equal(t, record.ReportDegraded, told[0].Kind)
		require.ErrorIs(t, told[0].Err, errDown)
		service.err = nil
		get()
		service.err = errDown
		get()
		require.Len(t, told, 2, "another outage")
	})
	t.Run("WhatWasNotAskedSaysWhy", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var reasons []string
			d := payments(t, func(c *downstream.Config) { c.MaxConcurrent = 1 })
			d.Observe(&record.Hooks{OnDegraded: func(i record.DegradedInfo) { reasons = append(reasons, i.Reason) }})
			f := fallback(t, d, whole)
			get := func() {
				_, err := f.Get(t.Context(), "EUR", (&rates{err: errDown}).read)
				require.NoError(t, err)
			}
			get()
			release, ok := d.Acquire(t.Context(), nil)
			require.True(t, ok)
			get()
			release()
			for d.State() != record.BreakerOpen {
				fail(t, d)
			}
			get()
			require.Equal(t, []string{record.DegradedFailed, record.DegradedFull, record.DegradedOpen}, reasons)
		})
	})
}

func TestNewFallback(t *testing.T) {
	t.Parallel()
	d := payments(t)
	for want, cfg := range map[string]downstream.FallbackConfig[string]{
		"Operation is empty":  {},
		"MaxEntries (-1)":     {Operation: "rate", MaxEntries: -1},
		"MaxAge (-1s)":        {Operation: "rate", MaxAge: -time.Second},
		"needs a Dependency:": {Operation: "rate"},
	} {
		with := d
		if want == "needs a Dependency:" {
			with = nil
		}
		_, err := downstream.NewFallback(with, cfg)
		require.ErrorContains(t, err, want)
	}
}
