package middleware_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/middleware"
)

func TestFloodGuard(t *testing.T) {
	t.Parallel()
	p := middleware.Partition{Topic: "orders", Partition: 3}

	admit := func(f *middleware.FloodGuard, n int) (admitted int) {
		for range n {
			if permit, ok := f.Admit(p); ok {
				permit.Used()
				admitted++
			}
		}
		return admitted
	}

	t.Run("VerdictsAtOnceStopAtTheLimit", func(t *testing.T) {
		t.Parallel()
		f := middleware.NewFloodGuard(middleware.FloodConfig{Run: 100})
		var admitted atomic.Int32
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				if permit, ok := f.Admit(p); ok {
					admitted.Add(1)
					permit.Used()
				}
			})
		}
		wg.Wait()
		require.Equal(t, int32(100), admitted.Load())
	})

	t.Run("AnythingElseEndsARun", func(t *testing.T) {
		t.Parallel()
		f := middleware.NewFloodGuard(middleware.FloodConfig{Run: 10})
		require.Equal(t, 9, admit(f, 9))
		f.Settled(p, 1)
		require.Equal(t, 10, admit(f, 20))
	})

	t.Run("ReturnedPermitsDoNotCount", func(t *testing.T) {
		t.Parallel()
		f := middleware.NewFloodGuard(middleware.FloodConfig{Run: 1})
		permit, ok := f.Admit(p)
		require.True(t, ok)
		_, second := f.Admit(p)
		require.False(t, second, "what is out counts")
		permit.Return()
		require.Equal(t, 1, admit(f, 5))
	})

	t.Run("RatioCountsWhereRunsAreShort", func(t *testing.T) {
		t.Parallel()
		f := middleware.NewFloodGuard(middleware.FloodConfig{Run: 100, Ratio: 0.8, Window: 200})
		admitted := 0
		for range 100 { // nine in ten die
			admitted += admit(f, 9)
			f.Settled(p, 1)
		}
		require.InDelta(t, 90+90*4, admitted, 90, "from half a window on four die for each that is good, and not nine")
		f.Settled(p, 200)
		require.Equal(t, 9, admit(f, 9), "the window forgets")
	})

	t.Run("PartitionsAreApart", func(t *testing.T) {
		t.Parallel()
		f := middleware.NewFloodGuard(middleware.FloodConfig{Run: 1})
		require.Equal(t, 1, admit(f, 2))
		_, ok := f.Admit(middleware.Partition{Topic: "orders", Partition: 4})
		require.True(t, ok)
	})

	t.Run("OperatorReleases", func(t *testing.T) {
		t.Parallel()
		f := middleware.NewFloodGuard(middleware.FloodConfig{Run: 2, Ratio: 0.5, Window: 4})
		require.Equal(t, 2, admit(f, 9))
		f.Release(p)
		require.Equal(t, 2, admit(f, 9))
	})

	t.Run("DefaultsLetAFetchOfPoisonThrough", func(t *testing.T) {
		t.Parallel()
		f := middleware.NewFloodGuard(middleware.FloodConfig{})
		require.Equal(t, 10_000, admit(f, 20_000))
	})

	t.Run("PartitionsAreListedInOrder", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		require.Equal(t, []middleware.Partition{{"a", 1}, {"a", 2}, {"b", 0}},
			middleware.Partitions(map[middleware.Partition]time.Time{{"b", 0}: now, {"a", 2}: now, {"a", 1}: now}))
	})
}
