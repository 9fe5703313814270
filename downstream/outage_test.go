package downstream_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// An outage dead-letters nothing, at any concurrency: by partition, a record that fails three times in a row is dead long
// before a breaker has seen twenty calls.
func TestAnOutageChargesNobody(t *testing.T) {
	t.Parallel()
	const attempts = 3
	for _, r := range []struct {
		partitions int
		every      time.Duration // a record a partition
		outage     time.Duration
	}{
		{1, 0, 30 * time.Second},
		{1, time.Second, 30 * time.Second},
		{1, 0, 10 * time.Minute},
		{8, 0, 30 * time.Second},
		{200, 0, 2 * time.Minute},
	} {
		t.Run(fmt.Sprintf("%dPartitionsEvery%sDownFor%s", r.partitions, r.every, r.outage), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, err := downstream.New(downstream.Config{Name: "payments"})
				require.NoError(t, err)
				var down atomic.Bool
				var dead, effected, after atomic.Int64
				ctx, cancel := context.WithCancel(t.Context())

				// run takes one record as far as it gets.
				run := func() {
					for charged, free := 0, 0; ctx.Err() == nil; {
						failed, charge := try(ctx, d, &down)
						switch {
						case !failed:
							effected.Add(1)
							if free > 0 || charged > 0 {
								after.Add(1)
							}
							return
						case charge == downstream.Charged:
							if charged++; charged == attempts {
								dead.Add(1)
								return
							}
							wait(ctx, 200*time.Millisecond)
						case charge == downstream.Free:
							free++
							wait(ctx, min(200*time.Millisecond<<min(free, 6), 10*time.Second))
						case charge == downstream.Outage:
							free++
						}
					}
				}
				var wg sync.WaitGroup
				for range r.partitions {
					wg.Go(func() {
						for ctx.Err() == nil {
							run()
							wait(ctx, r.every)
						}
					})
				}
				elapse(10 * time.Second)
				down.Store(true)
				elapse(r.outage)
				down.Store(false)
				elapse(2 * time.Minute)
				cancel()
				wg.Wait()

				require.Zero(t, dead.Load())
				require.Equal(t, int64(r.partitions), after.Load(), "each that the outage met is effected")
				require.Greater(t, effected.Load(), after.Load())
			})
		})
	}
}

// try is what the layer that calls does for a record.
func try(ctx context.Context, d *downstream.Dependency, down *atomic.Bool) (failed bool, charge downstream.Charge) {
	pass, ok := d.Gate().Enter(ctx, nil)
	if !ok {
		return true, downstream.Outage
	}
	defer pass.Release()
	release, ok := d.Acquire(ctx, nil)
	if !ok {
		return true, downstream.Outage
	}
	defer release()
	c, err := d.Begin(limit)
	if err != nil {
		return true, downstream.Outage
	}
	failed = down.Load()
	wait(ctx, time.Second) // shorter calls are more timers than Go's race detector stands in a bubble: golang/go#78156
	f := fault.Fault{}
	if failed = failed || down.Load(); failed {
		f = transient
	}
	return failed, c.End(failed, f)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
