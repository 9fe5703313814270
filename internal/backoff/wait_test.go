package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/backoff"
)

func TestWait(t *testing.T) {
	bubble := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}

	bubble("LastsItsTime", func(t *testing.T) {
		began := time.Now()
		require.True(t, backoff.Wait(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(began))
	})

	bubble("EndsWithItsContext", func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, backoff.Wait(ctx, time.Minute))
		require.Equal(t, time.Second, time.Since(began))
	})

	bubble("EndsEarly", func(t *testing.T) {
		began := time.Now()
		early := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(early) })
		require.False(t, backoff.WaitUnless(t.Context(), time.Minute, early))
		require.Equal(t, time.Second, time.Since(began))
	})
}
