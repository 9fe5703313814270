package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/record"
)

// buried is a world with n dead orders whose cause is gone.
func buried(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t)
	w.start()
	for i := range n {
		w.order("order-"+strconv.Itoa(i), []byte(`{"id":"order-`+strconv.Itoa(i)+`","fate":"unknown"}`))
	}
	require.Equal(t, map[record.Outcome]int{record.Dead: n}, w.outcomes(n))
	w.requireEffects(0)
	w.healthy.Store(true)
	return w
}

// requireOnce waits until all that was replayed has settled, and checks that each of n records had its effect once.
func (w *world) requireOnce(n int) {
	w.t.Helper()
	got := w.outcomes(len(w.replayed()))
	require.Zero(w.t, got[record.Dead], "%v", got)
	require.GreaterOrEqual(w.t, got[record.Effected], n, "%v", got)
	w.requireEffects(n)
}

// Case 45: a replay that is repeated, or that two operators begin at once, has each record's effect once.
func TestReplay_RepeatedHasEachEffectOnce(t *testing.T) {
	t.Parallel()

	t.Run("OneAfterTheOther", func(t *testing.T) {
		t.Parallel()
		w := buried(t, 60)
		for range 3 {
			w.ok("dlq", "replay", "--topic", "orders.dlq", "--yes")
		}
		require.Len(t, w.replayed(), 180)
		w.requireOnce(60)
	})

	t.Run("TwoAtOnce", func(t *testing.T) {
		t.Parallel()
		w := buried(t, 60)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { w.ok("dlq", "replay", "--topic", "orders.dlq", "--yes") })
		}
		both.Wait()
		require.Len(t, w.replayed(), 120)
		w.requireOnce(60)
	})
}

// Case 46: a replay whose process ends half way, in order or not, is finished by running it again.
func TestReplay_KilledHalfWayAndRunAgainHasEachEffectOnce(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			const n = 1200 // more than two batches
			w := buried(t, n)
			code, errs := w.endHalfWay(signal)
			if signal == syscall.SIGTERM {
				require.Equal(t, exitFailed, code)
				require.Contains(t, errs, "stopped: terminated signal received. Run the same command again")
			}
			half := len(w.replayed())
			require.Positive(t, half)
			require.Less(t, half, n)

			w.ok("dlq", "replay", "--topic", "orders.dlq", "--yes")
			// The broker may take the batch that was under way after the process is gone, and after half was counted.
			require.GreaterOrEqual(t, len(w.replayed()), half+n)
			require.Less(t, len(w.replayed()), 2*n)
			w.requireOnce(n)
		})
	}
}

// endHalfWay runs a replay in a process of its own and ends it after its first batch.
func (w *world) endHalfWay(signal syscall.Signal) (code int, errs string) {
	w.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(w.t.Context()), os.Args[0], "dlq", "replay", "--topic", "orders.dlq", "--yes", "--brokers", w.brokers[0])
	var out bytes.Buffer
	cmd.Env, cmd.Stderr = append(os.Environ(), runVariable+"=1"), &out
	half, signalled := make(chan struct{}), make(chan struct{})
	var batches atomic.Int32
	w.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		if batches.Add(1) == 2 {
			close(half)
			w.fake.SleepControl(func() { <-signalled })
		}
		return nil, nil, false
	})
	require.NoError(w.t, cmd.Start())
	<-half
	require.NoError(w.t, cmd.Process.Signal(signal))
	close(signalled)
	_ = cmd.Wait() // how it ended is in its state
	return cmd.ProcessState.ExitCode(), out.String()
}
