package consumer

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// roomy is a budget with every term, far within its limit.
func roomy() budget {
	return budget{
		route: "charge", attempts: 3, callTimeout: 10 * time.Second, attemptTimeout: 5 * time.Second,
		backoffBase: 200 * time.Millisecond, backoffCap: 10 * time.Second, deadLetterTimeout: 10 * time.Second,
		commitReserve: 5 * time.Second, maxPollInterval: 5 * time.Minute,
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()

	t.Run("DefaultsFit", func(t *testing.T) {
		t.Parallel()
		s := spec{name: "a", topic: "b", options: Options{}.withDefaults(defaultMaxBatch)}
		for _, sum := range plan(Config{}.withDefaults(), []spec{s}) {
			require.True(t, sum.Fits(), sum)
			require.Empty(t, sum.Fix())
		}
	})

	t.Run("TotalsAreTheSumOfTheTerms", func(t *testing.T) {
		t.Parallel()
		// 3 x (10 s + 5 s) + 200 ms + 400 ms + 10 s + 5 s
		require.Equal(t, 60*time.Second+600*time.Millisecond, roomy().sum().Total())
	})

	t.Run("CallTimeoutIsNoTermOfARouteThatCallsNobody", func(t *testing.T) {
		t.Parallel()
		b := roomy()
		b.callTimeout = 0
		require.Equal(t, 30*time.Second+600*time.Millisecond, b.sum().Total())
		require.NotContains(t, b.sum().String(), "CallTimeout")
	})

	t.Run("ExactlyTheLimitFitsAndANanosecondMoreDoesNot", func(t *testing.T) {
		t.Parallel()
		b := roomy()
		b.maxPollInterval = b.sum().Total()
		require.True(t, b.sum().Fits())
		b.commitReserve++
		require.False(t, b.sum().Fits())
	})

	t.Run("BackoffsDoubleUpToTheCap", func(t *testing.T) {
		t.Parallel()
		b := budget{backoffBase: time.Second, backoffCap: 5 * time.Second}
		for attempts, want := range map[int]time.Duration{
			0: 0, 1: 0, 2: time.Second, 3: 3 * time.Second, 4: 7 * time.Second, 5: 12 * time.Second, 6: 17 * time.Second,
		} {
			require.Equal(t, want, b.backoffs(attempts), "%d attempts", attempts)
		}
	})

	t.Run("ABaseAboveTheCapCountsAsTheCap", func(t *testing.T) {
		t.Parallel()
		b := budget{backoffBase: time.Minute, backoffCap: time.Second}
		require.Equal(t, 2*time.Second, b.backoffs(3))
	})

	t.Run("HugeTermsAreRefusedAndDoNotWrapAround", func(t *testing.T) {
		t.Parallel()
		for name, change := range map[string]func(*budget){
			"AttemptTimeout": func(b *budget) { b.attemptTimeout = math.MaxInt64 },
			"Sum":            func(b *budget) { b.callTimeout, b.attemptTimeout = math.MaxInt64/2+1, math.MaxInt64/2+1 },
			"Backoff":        func(b *budget) { b.attempts, b.backoffBase, b.backoffCap = 100, math.MaxInt64/2, math.MaxInt64 },
			"Reserve":        func(b *budget) { b.commitReserve, b.deadLetterTimeout = math.MaxInt64, math.MaxInt64 },
		} {
			b := roomy()
			change(&b)
			require.False(t, b.sum().Fits(), name)
			require.NotEmpty(t, b.sum().Fix(), name)
		}
	})
}

func TestFix(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*budget)
		want   string
	}{
		"LowersTheCallWhereThatMovesLeast": {
			func(b *budget) {
				b.callTimeout, b.attemptTimeout, b.maxPollInterval = time.Minute, 30*time.Second, 4*time.Minute
			}, "lower CallTimeout to 44s, or raise MaxPollInterval to 4m45.6s",
		},
		"LowersTheAttemptWhereThatMovesLeast": {
			func(b *budget) { b.callTimeout, b.attemptTimeout = 0, 100*time.Second },
			"lower AttemptTimeout to 1m34s, or raise MaxPollInterval to 5m15.6s",
		},
		"LowersTheAttemptsWhereTheyAreMany": {
			func(b *budget) { b.attempts, b.callTimeout, b.maxPollInterval = 20, 0, 244*time.Second },
			"lower Attempts to 19, or raise MaxPollInterval to 4m17.6s",
		},
		"LowersTheBackoffWhereItIsMostOfIt": {
			func(b *budget) {
				b.backoffBase, b.backoffCap, b.callTimeout, b.maxPollInterval = 50*time.Second, 100*time.Second, 0, 175*time.Second
			}, "lower BackoffCap to 1m12s, or raise MaxPollInterval to 3m",
		},
		"LowersTheDeadLetterTimeoutWhereItIsMostOfIt": {
			func(b *budget) { b.deadLetterTimeout = 5 * time.Minute },
			"lower DeadLetterTimeout to 4m9s, or raise MaxPollInterval to 5m50.6s",
		},
		"RaisesTheLimitWhereNoOneFieldIsEnough": {
			func(b *budget) { b.maxPollInterval = 10 * time.Millisecond },
			"raise MaxPollInterval to 1m0.6s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := roomy()
			tc.change(&b)
			require.False(t, b.sum().Fits())
			require.Equal(t, tc.want, b.sum().Fix())
		})
	}
}

// TestFixFits applies every lever's proposal and adds again: advice that does not fit is worse than none.
func TestFixFits(t *testing.T) {
	t.Parallel()
	for limit := 20 * time.Second; limit < time.Minute; limit += 777 * time.Millisecond {
		b := roomy()
		b.maxPollInterval = limit
		for field, apply := range map[string]func(*budget, string){
			"CallTimeout":       func(b *budget, to string) { b.callTimeout = parse(t, to) },
			"AttemptTimeout":    func(b *budget, to string) { b.attemptTimeout = parse(t, to) },
			"DeadLetterTimeout": func(b *budget, to string) { b.deadLetterTimeout = parse(t, to) },
			"BackoffCap":        func(b *budget, to string) { b.backoffCap = parse(t, to) },
			"Attempts":          func(b *budget, to string) { b.attempts = int(to[0] - '0') },
		} {
			for _, l := range b.levers() {
				_, text, ok := l(b.sum().Total() - limit)
				if name, to, _ := strings.Cut(text, " to "); ok && name == field {
					fixed := b
					apply(&fixed, to)
					require.True(t, fixed.sum().Fits(), "%s under %s: %s", text, limit, fixed.sum())
				}
			}
		}
	}
}

func parse(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

func TestRebalanceSum(t *testing.T) {
	t.Parallel()
	c := Config{DrainGrace: 50 * time.Second}.withDefaults()
	require.False(t, c.rebalance().sum().Fits())
	require.Equal(t, "lower DrainGrace to 48s, or raise RebalanceTimeout to 1m2s", c.rebalance().sum().Fix())
}

func TestShort(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0s": 0, "1s": time.Second, "4m": 4 * time.Minute, "4m57s": 297 * time.Second, "1h": time.Hour,
		"1h1m": 61 * time.Minute, "1h0m1s": time.Hour + time.Second, "168h": 7 * 24 * time.Hour, "10m": 10 * time.Minute,
		"200ms": 200 * time.Millisecond,
	} {
		require.Equal(t, want, short(d))
	}
}
