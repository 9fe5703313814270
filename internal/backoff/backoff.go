// Package backoff has waits, and the arithmetic of those that grow.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Exponential is base × 2ⁿ, at most limit.
func Exponential(base, limit time.Duration, n int) time.Duration {
	d := base << min(n, 62)
	if d>>min(n, 62) != base || d > limit { // the shift overflowed, or it is enough
		return limit
	}
	return d
}

// Jitter is a random part of d, "full jitter".
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
