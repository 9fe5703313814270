package downstream_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// addAgain is a record that has failed before. It waits for a turn, until it is answered.
func (l *line) addAgain(t *testing.T, call func(c *downstream.Call) (failed bool, f fault.Fault)) {
	t.Helper()
	go func() {
		for failed := true; failed && t.Context().Err() == nil; {
			pass, ok := l.d.Gate().EnterAgain(t.Context(), nil)
			if !ok {
				return
			}
			c, err := l.d.Begin(limit)
			if err == nil {
				l.begun.add(time.Since(l.since))
				var f fault.Fault
				failed, f = call(c)
				c.End(failed, f)
			}
			pass.Release()
		}
	}()
	synctest.Wait()
}

// bad is a record whose call fails, and which waits no more then.
func bad(t *testing.T, d *downstream.Dependency) {
	t.Helper()
	go func() {
		if pass, ok := d.Gate().Enter(t.Context(), nil); ok {
			if c, err := d.Begin(limit); err == nil {
				c.End(true, transient)
			}
			pass.Release()
		}
	}()
	synctest.Wait()
}

func TestProbe(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t)) })
		})
	}

	// The bad records came first, and each of them would be asked for half a minute whether the service is well.
	bubble("IsDrawnByLotOnceOneHasFailed", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		for range 20 {
			bad(t, d)
		}
		for range 180 {
			l.add(t, answers)
		}
		elapse(12 * openFor)
		require.NotEmpty(t, l.begun.get())
	})
	bubble("IsOfferedToTheLineWhenTwoOfThoseThatWaitHaveFailed", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		var offered log[string]
		d.Gate().Watch(func() {
			if !d.Gate().Shut() {
				offered.add("offered")
			}
		})
		d.Observe(&record.Hooks{OnCall: func(i record.CallInfo) { offered.add(strconv.FormatBool(i.Probe)) }})
		for range 9 {
			bad(t, d)
		}
		elapse(8*openFor + 10*time.Second)
		require.Equal(t, []string{
			"true", "true", "offered", "true", "true", "offered", "true", "true", "true", "true",
		}, offered.get()[:10], "after 2 and after 4: what comes with the probe waits in memory")
	})
	bubble("IsNotOfferedToTheLineWhileManyWait", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		d.Gate().Watch(func() { require.True(t, d.Gate().Shut()) })
		for range 300 {
			bad(t, d)
		}
		elapse(20 * openFor)
		require.True(t, d.Gate().Shut())
	})
	bubble("ThatTheLineSuppliedIsTheLines", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		for range 2 {
			elapse(openFor + time.Second)
			fail(t, d)
		}
		l.add(t, answers)
		elapse(openFor + 10*time.Millisecond)
		require.Empty(t, l.begun.get(), "the line is asked first")
		pass, ok := d.Gate().TryEnter()
		require.True(t, ok)
		synctest.Wait()
		require.Empty(t, l.begun.get())
		succeed(t, d)
		pass.Release()
		synctest.Wait()
		require.Len(t, l.begun.get(), 1)
	})
	// Each of them fails after its timeout, as of a service that cannot stand them.
	bubble("OpensTheGateForWhoHasNotFailedAlthoughOthersThatHaveStillWait", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		l := newLine(d)
		for range 30 {
			l.addAgain(t, func(*downstream.Call) (bool, fault.Fault) {
				select {
				case <-time.After(limit - time.Second):
				case <-t.Context().Done():
				}
				return true, fault.Fault{Class: fault.ClassCancelled}
			})
		}
		elapse(openFor + 10*time.Millisecond)
		succeed(t, d)
		synctest.Wait()
		require.False(t, d.Gate().Shut(), "the line begins")
		_, shut := d.Gate().Since()
		require.False(t, shut)
		for range 10 {
			pass, ok := d.Gate().TryEnter()
			require.True(t, ok)
			require.False(t, pass.Turn())
			pass.Release()
		}
		pass, ok := d.Gate().Enter(t.Context(), nil)
		require.True(t, ok)
		pass.Release()
		_, ok = d.Gate().TryEnterAgain()
		require.False(t, ok, "who has failed waits for its turn")
	})
}
