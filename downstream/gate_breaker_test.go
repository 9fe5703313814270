package downstream_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// line is records that wait at the gate of a dependency and call it when they are let through, as routes do.
type line struct {
	d     *downstream.Dependency
	begun log[time.Duration] // since the line was made
	since time.Time
}

// add waits for a turn, as often as it is refused or call says that it failed.
func (l *line) add(t *testing.T, call func(c *downstream.Call) (failed bool, f fault.Fault)) {
	t.Helper()
	go func() {
		for !l.try(t.Context(), call) && t.Context().Err() == nil {
		}
	}()
	synctest.Wait()
}

func (l *line) try(ctx context.Context, call func(c *downstream.Call) (bool, fault.Fault)) (over bool) {
	pass, ok := l.d.Gate().Enter(ctx, nil)
	if !ok {
		return true
	}
	defer pass.Release()
	c, err := l.d.Begin(limit)
	if err != nil {
		return false
	}
	l.begun.add(time.Since(l.since))
	failed, f := true, fault.Fault{Class: fault.ClassCancelled}
	defer func() { c.End(failed, f) }()
	failed, f = call(c)
	return !failed
}

func newLine(d *downstream.Dependency) *line { return &line{d: d, since: time.Now()} }

func answers(*downstream.Call) (bool, fault.Fault) { return false, fault.Fault{} }

func TestGateFollowsTheBreaker(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t)) })
		})
	}

	bubble("OneProbeAndThenARamp", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		busy := func(*downstream.Call) (bool, fault.Fault) {
			<-time.After(time.Second)
			return false, fault.Fault{}
		}
		for range 8 {
			l.add(t, busy)
		}
		require.Empty(t, l.begun.get())
		elapse(openFor + 10*time.Second)
		at := []time.Duration{0, 1, 1, 2, 2, 2, 2, 3}
		for i := range at {
			at[i] = openFor + at[i]*time.Second
		}
		require.InDeltaSlice(t, at, l.begun.get(), float64(10*time.Millisecond))
		require.False(t, d.Gate().Shut())
	})
	bubble("AProbeOfAPlainClientOpensItForAll", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		elapse(openFor + time.Second)
		probe := begin(t, d)
		l := newLine(d)
		l.add(t, answers)
		elapse(time.Second)
		require.Empty(t, l.begun.get(), "a probe is out")
		require.True(t, d.Gate().Shut())
		probe.End(false, fault.Fault{})
		synctest.Wait()
		require.Len(t, l.begun.get(), 1)
	})
	bubble("AFailedProbeOfAPlainClientShutsItForAll", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		elapse(openFor + time.Second)
		require.False(t, d.Gate().Shut())
		require.Equal(t, downstream.Outage, fail(t, d))
		l := newLine(d)
		l.add(t, answers)
		elapse(openFor + time.Second)
		require.InDeltaSlice(t, []time.Duration{openFor}, l.begun.get(), float64(10*time.Millisecond))
	})
	bubble("AnEndlessProbeIsFollowedByTheNextWithinItsLimit", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		l.add(t, func(*downstream.Call) (bool, fault.Fault) {
			<-t.Context().Done()
			return true, transient
		})
		l.add(t, answers)
		elapse(2*openFor + limit + time.Second)
		require.InDeltaSlice(t, []time.Duration{openFor, 2*openFor + limit}, l.begun.get(), float64(10*time.Millisecond))
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("AProbeThatIsCancelledIsFollowedAtOnce", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		ctx, cancel := context.WithCancel(t.Context())
		go l.try(ctx, func(*downstream.Call) (bool, fault.Fault) {
			<-ctx.Done()
			return true, fault.Fault{Class: fault.ClassCancelled}
		})
		synctest.Wait()
		l.add(t, answers)
		elapse(openFor + time.Second)
		require.Len(t, l.begun.get(), 1)
		cancel()
		synctest.Wait()
		require.Len(t, l.begun.get(), 2)
	})
	bubble("AProbeThatPanicsOrEndsItsGoroutineIsFollowedAtOnce", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		go func() {
			defer func() { _ = recover() }()
			l.try(t.Context(), func(*downstream.Call) (bool, fault.Fault) { panic("no owner") })
		}()
		synctest.Wait()
		go l.try(t.Context(), func(*downstream.Call) (bool, fault.Fault) {
			runtime.Goexit()
			return false, fault.Fault{}
		})
		synctest.Wait()
		l.add(t, answers)
		elapse(openFor + 10*time.Millisecond)
		require.Len(t, l.begun.get(), 3)
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("AllWaitersLeaveAndTheLineIsAskedForAProbe", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		soft := make(chan struct{})
		for range 3 {
			waiter(d.Gate(), soft, func(p downstream.Pass) { p.Release() })
		}
		close(soft)
		elapse(openFor + time.Second)
		require.False(t, d.Gate().Shut())
		pass, ok := d.Gate().TryEnter()
		require.True(t, ok)
		require.True(t, begin(t, d).Probe())
		pass.Release()
	})
	bubble("ATurnThatIsHeldForLongBringsNoSecondProbe", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		elapse(openFor + time.Second)
		_, ok := d.Gate().TryEnter() // and its owner waits for something else
		require.True(t, ok)
		l := newLine(d)
		l.add(t, func(*downstream.Call) (bool, fault.Fault) {
			<-time.After(limit - time.Second)
			return false, fault.Fault{}
		})
		elapse(15 * time.Second)
		require.Len(t, l.begun.get(), 1)
		_ = requireRefused(t, d)
		elapse(limit)
		require.Equal(t, record.BreakerClosed, d.State())
	})
	bubble("GoodNewsFromElsewhereDoNotOpenItWhileTheBreakerIsOpen", func(t *testing.T, d *downstream.Dependency) {
		pass, _ := d.Gate().TryEnter()
		open(t, d)
		pass.OK()
		d.Gate().Up()
		require.True(t, d.Gate().Shut())
	})
	bubble("BadNewsFromElsewhereDoNotBringTheProbeForward", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		elapse(openFor + time.Second)
		pass, ok := d.Gate().TryEnter()
		require.True(t, ok)
		require.Equal(t, downstream.Outage, fail(t, d))
		pass.FailedUntil(time.Time{})
		d.Observe(&record.Hooks{OnCall: func(i record.CallInfo) { require.NotEqual(t, record.CallRefused, i.Outcome) }})
		l.since = time.Now()
		l.add(t, answers)
		elapse(openFor + time.Second)
		require.InDeltaSlice(t, []time.Duration{openFor}, l.begun.get(), float64(10*time.Millisecond))
	})
	bubble("RefusedCredentialsHoldWithABackOffWhileTheBreakerIsClosed", func(t *testing.T, d *downstream.Dependency) {
		l := newLine(d)
		refused := fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments", Rule: "http 401"}
		for range 20 {
			succeed(t, d)
		}
		l.add(t, func(*downstream.Call) (bool, fault.Fault) { return len(l.begun.get()) < 4, refused })
		require.Len(t, l.begun.get(), 1)
		require.True(t, d.Gate().Shut())
		elapse(10 * time.Second)
		at := l.begun.get()
		require.Len(t, at, 4)
		require.Greater(t, at[3]-at[2], at[1]-at[0])
		require.False(t, d.Gate().Shut())
	})
	bubble("OldNewsAtTheShutGateIsAskedForLessAndLess", func(t *testing.T, d *downstream.Dependency) {
		byHand := fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments", Rule: "verb unavailable"}
		succeed(t, d)
		began, after := time.Now(), downstream.Streak{}
		var at []time.Duration
		for range 5 { // nobody else is in line, so it is its own probe
			pass, ok := d.Gate().Enter(t.Context(), nil)
			require.True(t, ok)
			at = append(at, time.Since(began))
			c, err := d.BeginAgain("charge", limit, after)
			require.NoError(t, err)
			c.End(true, byHand)
			pass.Release()
			after = c.Streak()
			require.True(t, d.Gate().Shut())
		}
		require.Greater(t, at[2]-at[1], at[1]-at[0])
		require.Greater(t, at[3]-at[2], at[2]-at[1])
	})
	bubble("OneRecordThatIsUnavailableForEverStopsThoseThatAreAnswered", func(t *testing.T, d *downstream.Dependency) {
		byHand := fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments", Rule: "verb unavailable"}
		after := downstream.Streak{}
		for try := range 30 {
			succeed(t, d)
			c, err := d.BeginAgain("charge", limit, after)
			require.NoError(t, err)
			c.End(true, byHand)
			after = c.Streak()
			require.Equal(t, try == 0, d.Gate().Shut(), "its first failure may be an outage")
			elapse(time.Second)
		}
		require.Equal(t, record.BreakerClosed, d.State())
		elapse(time.Minute) // nobody is answered any more
		c, err := d.BeginAgain("charge", limit, after)
		require.NoError(t, err)
		c.End(true, byHand)
		require.True(t, d.Gate().Shut(), "it is news again")
	})
}

func TestExactlyOneProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := payments(t)
		open(t, d)
		l := newLine(d)
		var down atomic.Bool
		down.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		slow := func(*downstream.Call) (bool, fault.Fault) {
			<-time.After(3 * time.Second)
			return down.Load(), transient
		}
		for range 50 {
			l.add(t, slow)
		}
		for range 20 {
			go func() { // a client that knows no gate
				for ctx.Err() == nil {
					_ = d.Do(t.Context(), func(context.Context) error {
						l.begun.add(time.Since(l.since))
						if failed, _ := slow(nil); failed {
							return errDown
						}
						return nil
					})
					<-time.After(700 * time.Millisecond)
				}
			}()
		}
		elapse(10 * time.Minute)
		at := l.begun.get()
		require.InDelta(t, (10*time.Minute)/(openFor+3*time.Second), len(at), 1)
		for i := range len(at) - 1 {
			require.GreaterOrEqual(t, at[i+1]-at[i], openFor, "two probes at once")
		}
		down.Store(false)
		elapse(time.Minute)
		require.Equal(t, record.BreakerClosed, d.State())
		cancel()
		elapse(time.Minute)
	})
}
