package downstream_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

var (
	transient = fault.Fault{Class: fault.ClassTransient}
	permanent = fault.Fault{Class: fault.ClassPermanent, Rule: "unknown"}
	errDown   = fault.Transient(errors.New("connection refused"))
)

const (
	openFor = 30 * time.Second
	limit   = 15 * time.Second
)

// payments is a dependency whose breaker opens after four of four failures.
func payments(t testing.TB, change ...func(*downstream.Config)) *downstream.Dependency {
	t.Helper()
	cfg := downstream.Config{Name: "payments", Breaker: downstream.BreakerConfig{MinRequests: 4, OpenFor: openFor}}
	for _, f := range change {
		f(&cfg)
	}
	d, err := downstream.New(cfg)
	require.NoError(t, err)
	return d
}

func begin(t testing.TB, d *downstream.Dependency) *downstream.Call {
	t.Helper()
	c, err := d.Begin(limit)
	require.NoError(t, err)
	return c
}

func fail(t testing.TB, d *downstream.Dependency) downstream.Charge {
	t.Helper()
	return begin(t, d).End(true, transient)
}

func succeed(t testing.TB, d *downstream.Dependency) {
	t.Helper()
	begin(t, d).End(false, fault.Fault{})
}

func open(t testing.TB, d *downstream.Dependency) {
	t.Helper()
	for range d.Config().Breaker.MinRequests {
		fail(t, d)
	}
	require.Equal(t, record.BreakerOpen, d.State())
}

func requireRefused(t testing.TB, d *downstream.Dependency) *fault.RefusedError {
	t.Helper()
	_, err := d.Begin(limit)
	var refused *fault.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, fault.ErrBreakerOpen)
	require.Equal(t, "payments", refused.Dependency)
	return refused
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, f)
		})
	}

	bubble("OpensWhenHalfOfEnoughCallsFailed", func(t *testing.T) {
		d := payments(t)
		succeed(t, d)
		succeed(t, d)
		fail(t, d)
		require.Equal(t, record.BreakerClosed, d.State())
		fail(t, d)
		require.Equal(t, record.BreakerOpen, d.State())
		require.InDelta(t, openFor, requireRefused(t, d).RetryAfter, float64(10*time.Millisecond))
		require.True(t, d.Gate().Shut())
		elapse(openFor + time.Second)
		require.Equal(t, record.BreakerHalfOpen, d.State())
		require.False(t, d.Gate().Shut(), "the line must supply a probe")
		succeed(t, d)
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("CallsInFlightDoNotCount", func(t *testing.T) {
		d := payments(t)
		for range 100 {
			begin(t, d)
		}
		fail(t, d)
		require.Equal(t, record.BreakerClosed, d.State())
		elapse(limit + time.Second)
		require.Equal(t, record.BreakerOpen, d.State(), "what hangs has failed")
	})
	bubble("EachCallHasItsLimit", func(t *testing.T) {
		var took log[time.Duration]
		d := payments(t, func(c *downstream.Config) {
			c.Hooks = &record.Hooks{OnCall: func(i record.CallInfo) {
				require.Equal(t, record.CallFailed, i.Outcome)
				took.add(i.Took)
			}}
		})
		var calls []*downstream.Call
		for _, seconds := range []time.Duration{7, 3, 5, 1, 9, 0} {
			c, err := d.Begin(seconds * time.Second)
			require.NoError(t, err)
			calls = append(calls, c)
		}
		elapse(2 * time.Second)
		calls[4].End(true, transient)
		elapse(time.Minute)
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 7 * time.Second}, took.get())
		for _, c := range calls {
			c.End(true, transient)
		}
		require.Len(t, took.get(), 6)
	})
	bubble("OldFailuresFallOutOfTheWindow", func(t *testing.T) {
		d := payments(t)
		for range 3 {
			fail(t, d)
		}
		elapse(d.Config().Breaker.Window + 10*time.Second)
		fail(t, d)
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("AnswersRefusalsAndCancellationsNeverOpenIt", func(t *testing.T) {
		d := payments(t)
		for _, f := range []fault.Fault{
			permanent,
			{Class: fault.ClassBusy},
			{Class: fault.ClassCancelled},
			{Class: fault.ClassUnavailable, Dependency: fault.Database, Rule: "sqlstate 57P01"},
			{Class: fault.ClassUnavailable, Dependency: "payments", Rule: "breaker open"},
			{Class: fault.ClassUnavailable, Dependency: "ledger", Rule: "verb unavailable"},
			{Class: fault.ClassTransient, Rule: "no time left"},
			{Class: fault.ClassAmbiguous, Rule: "http 422"},
			{Class: fault.ClassPermanent, Rule: "panic"},
		} {
			for range 10 {
				require.Equal(t, downstream.Charged, begin(t, d).End(true, f), f)
			}
		}
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("RefusedCredentialsOpenIt", func(t *testing.T) {
		d := payments(t)
		for range 4 {
			begin(t, d).End(true, fault.Fault{Class: fault.ClassUnavailable, Dependency: "127.0.0.1:80", Rule: "http 401"})
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	bubble("AHungProbeLetsTheNextOneThrough", func(t *testing.T) {
		d := payments(t)
		open(t, d)
		elapse(openFor + time.Second)
		hung := begin(t, d)
		require.True(t, hung.Probe())
		_ = requireRefused(t, d)
		elapse(limit + time.Second)
		require.Equal(t, record.BreakerOpen, d.State(), "it counts as failed")
		elapse(openFor)
		probe := begin(t, d)
		require.True(t, probe.Probe())
		require.Equal(t, downstream.Outage, hung.End(true, transient), "nobody is charged for it")
		require.Equal(t, record.BreakerHalfOpen, d.State(), "it was counted once")
		probe.End(false, fault.Fault{})
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("AProbeThatSaysNothingLetsTheNextOneThroughAtOnce", func(t *testing.T) {
		d := payments(t)
		open(t, d)
		elapse(openFor + time.Second)
		for _, f := range []fault.Fault{{Class: fault.ClassCancelled}, {Class: fault.ClassPermanent, Rule: "panic"}} {
			probe := begin(t, d)
			require.True(t, probe.Probe())
			probe.End(true, f)
			probe.End(true, transient)
			require.Equal(t, record.BreakerHalfOpen, d.State())
		}
		require.True(t, begin(t, d).Probe())
	})
	bubble("LateResultsOfAnEarlierTimeChangeNothing", func(t *testing.T) {
		d := payments(t)
		late := []*downstream.Call{begin(t, d), begin(t, d), begin(t, d)}
		open(t, d)
		require.Equal(t, downstream.Outage, late[0].End(true, transient))
		late[1].End(false, fault.Fault{})
		require.Equal(t, record.BreakerOpen, d.State())
		require.True(t, d.Gate().Shut(), "an answer from before the breaker opened does not open the gate")
		elapse(openFor + time.Second)
		probe := begin(t, d)
		require.Equal(t, downstream.Outage, late[2].End(true, transient))
		probe.End(false, fault.Fault{})
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("HooksAreToldInOrderAndMayAsk", func(t *testing.T) {
		var d *downstream.Dependency
		var told []record.BreakerInfo
		hooks := &record.Hooks{OnBreaker: func(i record.BreakerInfo) {
			d.State()
			told = append(told, i)
		}}
		d = payments(t, func(c *downstream.Config) { c.Hooks = hooks })
		open(t, d)
		elapse(openFor + time.Second)
		fail(t, d)
		elapse(openFor + time.Second)
		succeed(t, d)
		var path []string
		for _, i := range told {
			path = append(path, i.From+">"+i.To)
		}
		require.Equal(t, []string{
			"closed>open", "open>half_open", "half_open>open", "open>half_open", "half_open>closed",
		}, path)
		require.Equal(t, 2*(openFor+time.Second), told[4].Open)
	})
}

func TestCharge(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t)) })
		})
	}

	bubble("AFailureIsFreeUntilSomebodyWasAnswered", func(t *testing.T, d *downstream.Dependency) {
		for range 4 {
			succeed(t, d)
		}
		require.Equal(t, downstream.Free, fail(t, d), "the answers were before it began")
		call := begin(t, d)
		succeed(t, d)
		require.Equal(t, downstream.Charged, call.End(true, transient))
	})
	bubble("ABadRequestIsAnAnswerToo", func(t *testing.T, d *downstream.Dependency) {
		call := begin(t, d)
		require.Equal(t, downstream.Charged, begin(t, d).End(true, permanent))
		require.Equal(t, downstream.Charged, call.End(true, transient))
	})
	bubble("AThrottledNeighbourIsNone", func(t *testing.T, d *downstream.Dependency) {
		call := begin(t, d)
		require.Equal(t, downstream.Free, begin(t, d).End(true, fault.Fault{Class: fault.ClassTransient, Rule: "http 429"}))
		require.Equal(t, downstream.Free, call.End(true, transient))
	})
	bubble("AnswersAreTheRecordsOwnEvenDuringAnOutage", func(t *testing.T, d *downstream.Dependency) {
		late := begin(t, d)
		open(t, d)
		require.Equal(t, downstream.Charged, late.End(true, permanent))
	})
	bubble("TheOneThatOpensItIsNotCharged", func(t *testing.T, d *downstream.Dependency) {
		for range 3 {
			fail(t, d)
		}
		last := begin(t, d)
		succeed(t, d)
		require.Equal(t, downstream.Outage, last.End(true, transient))
	})
	bubble("TheProbesFailureIsNotCharged", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		elapse(openFor + time.Second)
		require.Equal(t, downstream.Outage, fail(t, d))
	})
}

func TestDo(t *testing.T) {
	t.Parallel()

	t.Run("PanicAndGoexitLetTheNextProbeThrough", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := payments(t, func(c *downstream.Config) { c.MaxConcurrent = 1 })
			open(t, d)
			elapse(openFor + time.Second)
			require.Panics(t, func() { _ = d.Do(t.Context(), func(context.Context) error { panic("no owner") }) })
			var wg sync.WaitGroup
			wg.Go(func() {
				_ = d.Do(t.Context(), func(context.Context) error {
					runtime.Goexit()
					return nil
				})
			})
			wg.Wait()
			require.NoError(t, d.Do(t.Context(), func(context.Context) error { return nil }))
			require.Equal(t, record.BreakerClosed, d.State())
		})
	})
	t.Run("AFullBulkheadRefusesAtOnceAndIsNotTheDependencysFault", func(t *testing.T) {
		t.Parallel()
		d := payments(t, func(c *downstream.Config) { c.MaxConcurrent = 1 })
		err := d.Do(t.Context(), func(context.Context) error {
			for range 20 {
				require.ErrorIs(t, d.Do(context.Background(), func(context.Context) error { return nil }), fault.ErrBulkheadFull)
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, record.BreakerClosed, d.State())
	})
	t.Run("InsideOfItselfAndOfItsRouteNothingIsCountedAgain", func(t *testing.T) {
		t.Parallel()
		d := payments(t, func(c *downstream.Config) { c.MaxConcurrent = 1 })
		down := func(context.Context) error { return errDown }
		for range 10 {
			require.NoError(t, d.Do(t.Context(), func(ctx context.Context) error {
				require.ErrorIs(t, d.Do(ctx, down), errDown)
				return nil
			}))
		}
		ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d})
		for range 10 {
			require.ErrorIs(t, d.Do(ctx, down), errDown)
		}
		require.Equal(t, record.BreakerClosed, d.State())
	})
	t.Run("APermitOfAnotherDependencyIsNone", func(t *testing.T) {
		t.Parallel()
		d := payments(t)
		ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: payments(t)})
		for range 4 {
			require.ErrorIs(t, d.Do(ctx, func(context.Context) error { return errDown }), errDown)
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	t.Run("AContextThatIsOverBeginsNothing", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		errGone := errors.New("gone")
		cancel(errGone)
		require.ErrorIs(t, payments(t).Do(ctx, func(context.Context) error { panic("not run") }), errGone)
	})
}
