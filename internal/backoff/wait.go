package backoff

import (
	"context"
	"time"
)

// Wait is true once d has passed, false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool { return WaitUnless(ctx, d, nil) }

// WaitUnless is Wait that early ends too. A nil early never does.
func WaitUnless(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-early:
	case <-ctx.Done():
	}
	return false
}
