package downstream_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
)

// waiter enters a gate on a goroutine of its own and writes down when it was let through.
func waiter(g *downstream.Gate, soft <-chan struct{}, use func(downstream.Pass)) {
	go func() {
		if p, ok := g.Enter(context.Background(), soft); ok {
			use(p)
		}
	}()
	synctest.Wait()
}

// log is what happened, in order.
type log[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *log[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
}

func (l *log[T]) get() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// elapse lets d pass in a bubble, and everything happen that was due.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestGate(t *testing.T) {
	t.Parallel()
	run := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, f)
		})
	}

	run("OpenLetsEverybodyThrough", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		for range 3 {
			p, ok := g.TryEnter()
			require.True(t, ok)
			require.False(t, p.Turn())
			p.OK()
		}
		require.False(t, g.Shut())
	})

	run("WaitersAreServedInOrderOneProbeAtATime", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		g.Down(time.Time{})
		var order log[int]
		var out log[downstream.Pass]
		for i := range 4 {
			waiter(g, nil, func(p downstream.Pass) { order.add(i); out.add(p) })
		}
		elapse(100 * time.Millisecond)
		require.Equal(t, []int{0}, order.get(), "one probe")
		require.True(t, g.Shut())
		out.get()[0].Failed()
		synctest.Wait()
		require.Equal(t, []int{0}, order.get(), "the next probe waits for a back-off")
		elapse(200 * time.Millisecond)
		require.Equal(t, []int{0, 1}, order.get())
		out.get()[1].OK()
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2}, order.get(), "the ramp begins with one")
		out.get()[2].OK()
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3}, order.get())
		require.False(t, g.Shut(), "nobody waits: open")
	})

	run("BackOffGrowsToItsCap", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		g.Down(time.Time{})
		for _, most := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
			began := time.Now()
			p, ok := g.Enter(t.Context(), nil)
			require.True(t, ok)
			require.LessOrEqual(t, time.Since(began), most*time.Millisecond)
			require.GreaterOrEqual(t, time.Since(began), most*time.Millisecond/2)
			p.Failed()
		}
		g.Up()
	})

	run("FailuresOfThoseThatBeganBeforeMakeTheWaitNoLonger", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		var passes []downstream.Pass
		for range 100 {
			p, _ := g.TryEnter()
			passes = append(passes, p)
		}
		for _, p := range passes {
			p.Failed()
		}
		began := time.Now()
		p, ok := g.Enter(t.Context(), nil)
		require.True(t, ok)
		require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
		p.OK()
	})

	run("StaleFailureDoesNotShutAnOpenGate", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		old, _ := g.TryEnter()
		g.Down(time.Time{})
		g.Up()
		old.Failed()
		require.False(t, g.Shut())
	})

	run("FailedProberGoesToTheTail", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		g.Down(time.Time{})
		var order log[int]
		for i := range 3 {
			go func() {
				for range 2 {
					p, _ := g.Enter(context.Background(), nil)
					order.add(i)
					p.Failed()
				}
			}()
			synctest.Wait()
		}
		elapse(time.Minute)
		require.Equal(t, []int{0, 1, 2, 0, 1, 2}, order.get())
		g.Up()
	})

	run("LeaverPassesItsTurnOn", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		g.Down(time.Time{})
		soft := make(chan struct{})
		var served log[time.Time]
		waiter(g, soft, func(downstream.Pass) { t.Error("it has left") })
		waiter(g, nil, func(p downstream.Pass) { served.add(time.Now()); p.OK() })
		began := time.Now()
		close(soft)
		elapse(time.Second)
		require.Len(t, served.get(), 1)
		require.LessOrEqual(t, served.get()[0].Sub(began), 100*time.Millisecond)
	})

	run("TurnOfOneThatLeavesInTheSameMomentIsNotLost", func(t *testing.T) {
		for range 100 {
			g := downstream.NewGate(downstream.GateConfig{})
			g.Down(time.Time{})
			probe, _ := g.Enter(t.Context(), nil)
			soft := make(chan struct{})
			waiter(g, soft, func(p downstream.Pass) { p.Release() })
			close(soft)
			probe.Release() // the waiter has its turn, and may look at soft first
			began := time.Now()
			p, ok := g.Enter(t.Context(), nil)
			require.True(t, ok)
			require.Zero(t, time.Since(began))
			p.OK()
		}
	})

	run("HungProbeEndsByTimer", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{ProbeTimeout: 15 * time.Second})
		g.Down(time.Time{})
		hung, ok := g.Enter(t.Context(), nil)
		require.True(t, ok)
		began := time.Now()
		p, ok := g.Enter(t.Context(), nil)
		require.True(t, ok)
		require.LessOrEqual(t, time.Since(began), 15*time.Second+200*time.Millisecond)
		hung.Failed() // late: changes nothing
		require.True(t, g.Shut())
		p.OK()
		require.False(t, g.Shut())
	})

	run("HungProbeThatSucceedsAfterAllOpens", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		g.Down(time.Time{})
		hung, _ := g.Enter(t.Context(), nil)
		elapse(time.Minute)
		hung.OK()
		require.False(t, g.Shut())
	})

	run("SuccessSeenAnywhereOpens", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		old, _ := g.TryEnter()
		g.Down(time.Now().Add(time.Hour))
		require.True(t, g.Shut())
		began := time.Now()
		waiter(g, nil, func(p downstream.Pass) { p.OK() })
		old.OK()
		synctest.Wait()
		require.False(t, g.Shut())
		require.Zero(t, time.Since(began))
	})

	run("NobodyWaitsAndTheSchedulerMustSupplyTheProbe", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		var shut log[bool]
		stop := g.Watch(func() { shut.add(g.Shut()) })
		g.Down(time.Time{})
		require.True(t, g.Shut())
		elapse(100 * time.Millisecond)
		require.False(t, g.Shut(), "due, and nobody waits")
		require.Equal(t, []bool{true, false}, shut.get())
		p, ok := g.TryEnter()
		require.True(t, ok)
		require.True(t, p.Turn())
		_, second := g.TryEnter()
		require.False(t, second)
		require.True(t, g.Shut(), "the probe is out")
		p.OK()
		require.Equal(t, []bool{true, false, true, false}, shut.get())
		stop()
		g.Down(time.Time{})
		require.Len(t, shut.get(), 4)
		g.Up()
	})

	run("ReleasedTurnTeachesNothing", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		g.Down(time.Time{})
		p, _ := g.Enter(t.Context(), nil)
		began := time.Now()
		var next log[time.Time]
		waiter(g, nil, func(p downstream.Pass) { next.add(time.Now()); p.OK() })
		p.Release()
		p.Failed() // only the first counts
		synctest.Wait()
		require.Equal(t, []time.Time{began}, next.get(), "the next probes at once")
	})

	run("EndOfAContextEndsTheWait", func(t *testing.T) {
		g := downstream.NewGate(downstream.GateConfig{})
		due := time.Now().Add(time.Hour)
		g.Down(due)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, ok := g.Enter(ctx, nil)
		require.False(t, ok)
		p, ok := g.Enter(t.Context(), nil)
		require.True(t, ok)
		require.Equal(t, due, time.Now(), "who has left has no turn that the next one must wait for")
		p.OK()
	})

	run("RampSparesADependencyThatJustCameBack", func(t *testing.T) {
		// 2,000 wait for a dependency that takes 100 at once. Let go together they would need 21,000 calls.
		g := downstream.NewGate(downstream.GateConfig{})
		g.Down(time.Time{})
		var calls, inside atomic.Int32
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				for {
					p, _ := g.Enter(context.Background(), nil)
					calls.Add(1)
					full := inside.Add(1) > 100
					<-time.After(10 * time.Millisecond)
					inside.Add(-1)
					if !full {
						p.OK()
						return
					}
					p.Failed()
				}
			})
		}
		wg.Wait()
		require.Less(t, calls.Load(), int32(7000))
		require.False(t, g.Shut())
	})
}

func TestGateAsksWhoHasNotFailedFirst(t *testing.T) {
	t.Parallel()
	failedAgain := func(g *downstream.Gate, use func(p downstream.Pass)) {
		go func() {
			if p, ok := g.EnterAgain(context.Background(), nil); ok {
				use(p)
			}
		}()
		synctest.Wait()
	}
	bubble := func(name string, f func(t *testing.T, g *downstream.Gate)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := downstream.NewGate(downstream.GateConfig{Name: "payments", Base: time.Second, Cap: time.Second})
				g.Down(time.Now().Add(10 * time.Second))
				f(t, g)
			})
		})
	}

	bubble("TheLineHasTheProbe", func(t *testing.T, g *downstream.Gate) {
		var asked, let log[time.Duration]
		began := time.Now()
		g.Watch(func() { asked.add(time.Since(began)) })
		failedAgain(g, func(p downstream.Pass) { let.add(time.Since(began)); p.OK() })
		require.True(t, g.Shut())
		elapse(10*time.Second + time.Millisecond)
		require.Equal(t, []time.Duration{10 * time.Second}, asked.get(), "the line is told")
		require.False(t, g.Shut())
		_, ok := g.TryEnterAgain()
		require.False(t, ok)
		p, ok := g.TryEnter()
		require.True(t, ok)
		require.True(t, g.Shut(), "one probe at a time")
		elapse(5 * time.Second)
		require.Empty(t, let.get())
		p.OK()
		synctest.Wait()
		require.Len(t, let.get(), 1)
		require.False(t, g.Shut())
		_, ok = g.TryEnterAgain()
		require.True(t, ok)
	})
	bubble("AnIdleLineDoesNotLoseTheTurn", func(t *testing.T, g *downstream.Gate) {
		var let log[time.Duration]
		began := time.Now()
		failedAgain(g, func(p downstream.Pass) { let.add(time.Since(began)); p.OK() })
		elapse(time.Minute)
		require.Equal(t, []time.Duration{11 * time.Second}, let.get())
		require.False(t, g.Shut())
	})
	bubble("OneThatHasNotFailedComesFirstThoughItCameLater", func(t *testing.T, g *downstream.Gate) {
		var order log[string]
		for range 2 {
			failedAgain(g, func(p downstream.Pass) { order.add("again"); p.OK() })
		}
		for range 2 {
			waiter(g, nil, func(p downstream.Pass) { order.add("new"); p.OK() })
		}
		elapse(time.Minute)
		require.Equal(t, []string{"new", "new", "again", "again"}, order.get())
	})
	bubble("AllLeaveAndTheLineIsAsked", func(t *testing.T, g *downstream.Gate) {
		soft := make(chan struct{})
		go func() { g.EnterAgain(context.Background(), soft) }()
		elapse(5 * time.Second)
		close(soft)
		elapse(time.Hour)
		require.False(t, g.Shut())
	})
}
