package consumer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
)

type receipt struct{ ID string }

func dependency(t *testing.T, name string, change ...func(*downstream.Config)) *downstream.Dependency {
	t.Helper()
	cfg := downstream.Config{Name: name, RefuseInTransaction: true}
	for _, f := range change {
		f(&cfg)
	}
	d, err := downstream.New(cfg)
	require.NoError(t, err)
	return d
}

// goodCall is the least that a CallRoute needs.
func goodCall(t *testing.T) (Config, CallRoute[placed, receipt]) {
	t.Helper()
	cfg, _ := good(t)
	return cfg, CallRoute[placed, receipt]{
		Name: "charge", Topic: "orders", Dependency: dependency(t, "payments"), Repeat: RepeatKeyed,
		Call:  func(context.Context, Event[placed]) (receipt, error) { return receipt{}, nil },
		Apply: func(context.Context, pgx.Tx, Event[placed], receipt) error { return nil },
	}
}

func TestNew_CallRoute(t *testing.T) {
	t.Parallel()

	t.Run("AcceptsTheLeastConfiguration", func(t *testing.T) {
		t.Parallel()
		cfg, route := goodCall(t)
		c, err := New(cfg, route)
		require.NoError(t, err)
		require.Contains(t, c.Plan().String(), "3 attempts x CallTimeout 10s            30s")
		require.Empty(t, warnings(c.cfg, c.specs))
	})

	t.Run("TellsAllThatIsMissingAtOnce", func(t *testing.T) {
		t.Parallel()
		cfg, _ := goodCall(t)
		_, err := New(cfg, CallRoute[placed, receipt]{Name: "charge", Topic: "orders"})
		require.ErrorContains(t, err, "4 problems:")
		for _, field := range []string{"Dependency", "Call", "Apply", "does not say why its call may be made again"} {
			require.ErrorContains(t, err, field)
		}
	})

	t.Run("RoutesShareADependency", func(t *testing.T) {
		t.Parallel()
		cfg, route := goodCall(t)
		other := route
		other.Name = "refund"
		_, err := New(cfg, route, other)
		require.NoError(t, err)
	})

	t.Run("RefusesTwoDependenciesOfOneName", func(t *testing.T) {
		t.Parallel()
		cfg, route := goodCall(t)
		other := route
		other.Name, other.Dependency = "refund", dependency(t, "payments")
		_, err := New(cfg, route, other)
		require.ErrorContains(t, err, `route "charge" and route "refund" have two different dependencies named "payments"`)
		require.ErrorContains(t, err, "fix: give both the same *downstream.Dependency")
	})

	t.Run("WarnsOfACallThatARebalanceCutsOff", func(t *testing.T) {
		t.Parallel()
		cfg, route := goodCall(t)
		route.CallTimeout = 12 * time.Second
		c, err := New(cfg, route)
		require.NoError(t, err)
		require.Len(t, warnings(c.cfg, c.specs), 1)
		require.Contains(t, warnings(c.cfg, c.specs)[0], "CallTimeout 12s exceeds DrainGrace 10s")
	})
}

func TestNew_RefusesCallRoute(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, r *CallRoute[placed, receipt])
		want  string
	}{
		"UnsetRepeat": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.Repeat = RepeatUnset },
			"fix: set Repeat to RepeatKeyed, if the dependency carries out each Idempotency-Key once, to RepeatSafe, if the call changes nothing",
		},
		"RepeatThatIsNone": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.Repeat = 7 }, "Repeat is 7",
		},
		"NothingThatWrites": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.Apply = nil }, "fix: set CallRoute.Apply, or its Queue",
		},
		"TwoThatWrite": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) {
				r.Queue = func(*pgx.Batch, Event[placed], receipt) error { return nil }
			}, "has both Apply and Queue",
		},
		"NegativeCallTimeout": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.CallTimeout = -1 }, "CallTimeout is -1ns",
		},
		"CallTimeoutInAnotherUnit": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.CallTimeout = 10 }, "CallTimeout 10ns is below 10ms",
		},
		"CallsThatDoNotFit": {
			func(t *testing.T, r *CallRoute[placed, receipt]) {
				r.CallTimeout = 100 * time.Second
				r.Dependency = dependency(t, "payments", func(c *downstream.Config) { c.Breaker.Window = time.Hour })
			},
			"fix: lower CallTimeout to 1m29s, or raise MaxPollInterval to 5m30.6s",
		},
		"WindowShorterThanTwoCalls": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.CallTimeout = 31 * time.Second },
			"looks at the last 1m (Breaker.Window), less than 2 x CallTimeout 31s = 1m2s: calls that time out would fall out of it " +
				"before it can open\n    fix: raise Breaker.Window to 1m2s, or lower CallTimeout to 30s",
		},
		"WindowShorterThanTheBackoffsOfOneRecord": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) {
				r.BackoffBase, r.BackoffCap = 30*time.Second, 30*time.Second
			},
			"no more than the 2 back-offs of one record, 1m: its failures would never be seen together\n" +
				"    fix: raise Breaker.Window to 1m1s, or lower BackoffBase and BackoffCap to 29s",
		},
		"DependencyThatNobodyMade": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.Dependency = new(downstream.Dependency) },
			"route \"charge\" has a Dependency that was not made with downstream.New\n    fix: make one with downstream.New",
		},
		"DependencyNamedAsSomethingOfOurs": {
			func(t *testing.T, r *CallRoute[placed, receipt]) { r.Dependency = dependency(t, "retry-after") },
			`its dependency is named "retry-after"`,
		},
		"NoTopic": {
			func(_ *testing.T, r *CallRoute[placed, receipt]) { r.Topic = "" }, "fix: set CallRoute.Topic",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, route := goodCall(t)
			tc.spoil(t, &route)
			_, err := New(cfg, route)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "1 problem:", "one mistake, one problem")
			require.Equal(t, 1, strings.Count(err.Error(), "fix: "))
		})
	}
}

// Two sums that the same field is too long for: each fix, done alone, is enough for both.
func TestNew_FixOfACallTimeoutIsNotRefusedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		window, timeout, apply time.Duration
		fix                    string
	}{
		"TheWindowIsTheSmaller":          {time.Minute, 3 * time.Minute, 5 * time.Second, "lower CallTimeout to 30s"},
		"TheBudgetIsTheSmaller":          {5 * time.Minute, 160 * time.Second, 5 * time.Second, "lower CallTimeout to 1m29s"},
		"ATimeoutOfTheOtherKindIsLonger": {time.Minute, 70 * time.Second, 80 * time.Second, "lower CallTimeout to 14s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, route := goodCall(t)
			route.Dependency = dependency(t, "payments", func(c *downstream.Config) { c.Breaker.Window = tc.window })
			route.CallTimeout, route.AttemptTimeout = tc.timeout, tc.apply
			_, err := New(cfg, route)
			require.ErrorContains(t, err, "2 problems:")
			require.Equal(t, 2, strings.Count(err.Error(), tc.fix), err.Error())

			_, to, _ := strings.Cut(tc.fix, " to ")
			route.CallTimeout, err = time.ParseDuration(to)
			require.NoError(t, err)
			_, err = New(cfg, route)
			require.NoError(t, err)
		})
	}
}

// Calls of a window that is too short and of a budget that no call can save: each problem has a fix of its own.
func TestNew_CallThatNoShorterCallSaves(t *testing.T) {
	t.Parallel()
	cfg, route := goodCall(t)
	route.CallTimeout, route.AttemptTimeout = 40*time.Second, 4*time.Minute
	_, err := New(cfg, route)
	require.ErrorContains(t, err, "2 problems:")
	require.ErrorContains(t, err, "fix: raise Breaker.Window to 1m20s\n")
	require.ErrorContains(t, err, "fix: lower Attempts to 1, or raise MaxPollInterval")
}
