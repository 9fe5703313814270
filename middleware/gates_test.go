package middleware_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/middleware"
)

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

func TestGates(t *testing.T) {
	t.Parallel()
	t.Run("OneShutGateShutsTheRoute", func(t *testing.T) {
		t.Parallel()
		database := downstream.NewGate(downstream.GateConfig{Name: "database"})
		a := middleware.NewGates(downstream.GateConfig{}, database)
		b := middleware.NewGates(downstream.GateConfig{}, database)
		told := 0
		stop := b.Watch(func() { told++ })
		database.Down(time.Now().Add(time.Hour))
		require.True(t, a.Shut())
		require.True(t, b.Shut())
		require.Equal(t, 1, told)
		require.Contains(t, a.Down(), "database")
		database.Up()
		require.False(t, a.Shut())
		require.Empty(t, a.Down())
		b.Get("payments").Down(time.Now().Add(time.Hour))
		require.Equal(t, 3, told, "gates that come later are watched too")
		require.False(t, a.Shut())
		stop()
		b.Get("payments").Up()
		require.Equal(t, 3, told)
	})

	t.Run("ClosedTheyAreTakenOffTheGatesOfOthers", func(t *testing.T) {
		t.Parallel()
		database := downstream.NewGate(downstream.GateConfig{Name: "database"})
		s := middleware.NewGates(downstream.GateConfig{}, database)
		told := 0
		s.Watch(func() { told++ })
		s.Close()
		s.Close()
		(*middleware.Gates)(nil).Close()
		database.Down(time.Now().Add(time.Hour))
		require.Zero(t, told)
		require.True(t, s.Shut(), "what is in flight still asks")
		s.Get("payments").Down(time.Now().Add(time.Hour))
		require.Zero(t, told)
	})
}
