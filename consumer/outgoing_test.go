package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestNew_Outgoing(t *testing.T) {
	t.Parallel()
	const s = time.Second

	t.Run("CallsThatFitAreInThePlan", func(t *testing.T) {
		t.Parallel()
		cfg, route := goodCall(t)
		route.Calls = []Outgoing{{route.Dependency, 6 * s}, {dependency(t, "fraud"), 3 * s}}
		route.CallReserve = s
		c, err := New(cfg, route)
		require.NoError(t, err)
		plan := c.Plan().String()
		require.Contains(t, plan, "calls of route \"charge\":\n"+
			"    Budget of \"payments\"         6s\n"+
			"  + Budget of \"fraud\"            3s\n"+
			"  + CallReserve                  1s\n"+
			"  =                             10s, within CallTimeout 10s")
		require.NotNil(t, c.metrics.calls.find("fraud"), "what is declared is watched")
	})

	for name, tc := range map[string]struct {
		spoil func(t *testing.T, cfg *Config, r *CallRoute[placed, receipt])
		want  []string
	}{
		"ChildrenThatExceedTheirParent": {
			func(t *testing.T, _ *Config, r *CallRoute[placed, receipt]) {
				r.Calls = []Outgoing{{r.Dependency, 8 * s}, {dependency(t, "fraud"), 4 * s}}
			},
			[]string{"=                             12s, exceeds CallTimeout 10s by 2s", "lower Budget of \"payments\" to 6s, or raise CallTimeout to 12s"},
		},
		"CallsWithoutTheRoutesOwn": {
			func(t *testing.T, _ *Config, r *CallRoute[placed, receipt]) {
				r.Calls = []Outgoing{{dependency(t, "fraud"), s}}
			},
			[]string{`Calls leave out "payments"`},
		},
		"NoBudget": {
			func(_ *testing.T, _ *Config, r *CallRoute[placed, receipt]) { r.Calls = []Outgoing{{r.Dependency, 0}} },
			[]string{`Calls[0], to "payments", has the Budget 0s`},
		},
		"ABudgetThatIsLessThanNormal": {
			func(t *testing.T, _ *Config, r *CallRoute[placed, receipt]) {
				slow := dependency(t, "fraud", func(c *downstream.Config) { c.NormalTime = 3 * s })
				r.Calls = []Outgoing{{r.Dependency, s}, {slow, 2 * s}}
			},
			[]string{`Calls[1], to "fraud", has the Budget 2s, less than the 3s that such a call normally takes`, "raise the Budget to 3s"},
		},
		"NoDependency": {
			func(_ *testing.T, _ *Config, r *CallRoute[placed, receipt]) {
				r.Calls = []Outgoing{{r.Dependency, s}, {nil, s}}
			},
			[]string{"Calls[1] has no Dependency"},
		},
		"ABreakerThatForgetsTheCall": {
			func(t *testing.T, _ *Config, r *CallRoute[placed, receipt]) {
				nervous := dependency(t, "fraud", func(c *downstream.Config) { c.Breaker.Window = 4 * s })
				r.Calls = []Outgoing{{r.Dependency, s}, {nervous, 3 * s}}
			},
			[]string{`less than 2 x Budget 3s = 6s`, "raise Breaker.Window to 6s, or lower the Budget to 2s"},
		},
		"TwoOfOneName": {
			func(t *testing.T, _ *Config, r *CallRoute[placed, receipt]) {
				r.Calls = []Outgoing{{r.Dependency, s}, {dependency(t, "payments"), s}}
			},
			[]string{`two different dependencies named "payments"`},
		},
		"OneOfThatNameInTheConfig": {
			func(t *testing.T, cfg *Config, _ *CallRoute[placed, receipt]) {
				cfg.Dependencies = []*downstream.Dependency{dependency(t, "payments")}
			},
			[]string{`route "charge" and Config.Dependencies have two different dependencies named "payments"`},
		},
		"NoneInTheConfig": {
			func(_ *testing.T, cfg *Config, _ *CallRoute[placed, receipt]) {
				cfg.Dependencies = []*downstream.Dependency{nil}
			},
			[]string{"Dependencies[0] was not made with downstream.New"},
		},
		"ReconciledByNobody": {
			func(_ *testing.T, _ *Config, r *CallRoute[placed, receipt]) { r.Repeat = RepeatReconciled },
			[]string{"fix: set CallRoute.Reconcile"},
		},
		"AReconcileForNothing": {
			func(_ *testing.T, _ *Config, r *CallRoute[placed, receipt]) {
				r.Reconcile = func(context.Context, Event[placed]) (receipt, bool, error) { return receipt{}, false, nil }
			},
			[]string{"set Repeat to RepeatReconciled, or leave Reconcile out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, route := goodCall(t)
			tc.spoil(t, &cfg, &route)
			_, err := New(cfg, route)
			for _, want := range append(tc.want, "1 problem:") {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestNormalTime_IsTheRoutes(t *testing.T) {
	t.Parallel()
	for _, normal := range []time.Duration{0, 15 * time.Second, downstream.Measured} {
		cfg, route := goodCall(t)
		route.NormalTime = normal
		c, err := New(cfg, route)
		require.NoError(t, err)
		require.Equal(t, normal, c.stack(c.specs[0], nil, nil, nil).Retry.NormalTime)
	}
}

// A record that was called for long before it died was called for again after its key was forgotten, and charged twice.
func TestKeyRetention(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	found := topics{
		"orders":     {Name: "orders", Retention: 7 * day, CleanupPolicy: "delete"},
		"orders.dlq": {Name: "orders.dlq", Retention: 14 * day, CleanupPolicy: "delete"},
	}
	problems := func(t *testing.T, kept time.Duration, repeat Repeat) []Problem {
		t.Helper()
		cfg, route := goodCall(t)
		route.Dependency = dependency(t, "payments", func(c *downstream.Config) { c.KeyRetention = kept })
		route.Repeat = repeat
		c, err := New(cfg, route)
		require.NoError(t, err)
		return c.keyProblems(found)
	}
	require.Empty(t, problems(t, 0, RepeatKeyed), "nobody said")
	require.Empty(t, problems(t, day, RepeatSafe), "no key is needed")

	// Called and not answered, then held until its topic is about to forget it, then dead, then replayed in the last moment.
	require.Empty(t, problems(t, 21*day, RepeatKeyed))
	ps := problems(t, 21*day-1, RepeatKeyed)
	require.Len(t, ps, 1)
	require.Contains(t, ps[0].What, `a record can come again as late after its first call as `+
		`topic "orders" keeps 168h + topic "orders.dlq" keeps 336h = 504h: `)
	require.Contains(t, ps[0].Fix, "keep keys for 504h and raise KeyRetention, or shorten")

	found["orders.billing.replay"] = kafka.Topic{Name: "orders.billing.replay", Retention: 14 * day, CleanupPolicy: "delete"}
	require.Empty(t, problems(t, 35*day, RepeatKeyed))
	require.Contains(t, problems(t, 30*day, RepeatKeyed)[0].What, `+ topic "orders.billing.replay" keeps 336h = 840h: `)

	found["orders"] = kafka.Topic{Name: "orders", Retention: kafka.Forever, CleanupPolicy: "delete"}
	require.Contains(t, problems(t, 1000*day, RepeatKeyed)[0].What, " = kafka.Forever: ")
}

// A service that knows no keys, and can be asked.
func TestCallRoute_Reconciles(t *testing.T) {
	t.Parallel()
	b, p := newBed(t), newPayments(t)
	route := p.route(dependency(t, "payments"))
	route.Repeat = RepeatReconciled
	route.Reconcile = func(_ context.Context, e Event[item]) (receipt, bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, order := range p.charged {
			if order == e.Data.ID {
				return receipt{ID: "receipt of " + order}, true, nil
			}
		}
		return receipt{}, false, nil
	}
	r := b.start(b.config(), route)
	b.produce(items("ok", 10)...)
	b.produce(items("lost", 5)...)
	require.Equal(t, map[record.Outcome]int{record.Effected: 15}, b.outcomes(15))
	r.stop()
	for order, written := range b.receipts() {
		require.Equal(t, "receipt of "+order, written)
		require.Equal(t, 1, p.calls(order), "what was charged is not sent again")
	}
}

// What stands around calls is in a scrape, also of a dependency that no route calls.
func TestMetrics_OfWhatStandsAroundCalls(t *testing.T) {
	t.Parallel()
	rates := dependency(t, "rates", func(c *downstream.Config) { c.Retry.Base, c.Retry.Cap = time.Millisecond, time.Millisecond })
	cfg, route := goodCall(t)
	cfg.Dependencies = []*downstream.Dependency{rates}
	c, err := New(cfg, route)
	require.NoError(t, err)
	defer c.metrics.calls.watch(c.hooks)()
	f, err := downstream.NewFallback(rates, downstream.FallbackConfig[string]{
		Operation: "rate", Default: func(string) (string, bool) { return "1", true },
	})
	require.NoError(t, err)
	errBoom, errDown := errors.New("boom"), fault.Transient(errors.New("down"))
	down := func(context.Context) (string, error) { return "", errBoom }
	_, err = f.Get(t.Context(), "EUR", down)
	require.ErrorIs(t, err, errBoom, "an unknown error is an answer")
	_, err = f.Get(t.Context(), "EUR", func(context.Context) (string, error) {
		text := scrape(t, c.cfg.Registry)
		require.Contains(t, text, `headrace_bulkhead_in_use{dependency="rates"} 1`)
		return "", errDown
	})
	require.NoError(t, err)
	text := scrape(t, c.cfg.Registry)
	for _, want := range []string{
		`headrace_bulkhead_in_use{dependency="rates"} 0`,
		`headrace_bulkhead_in_use{dependency="payments"} 0`,
		`headrace_degraded_total{dependency="rates",reason="failed",source="default"} 1`,
		`headrace_retry_attempts_total{dependency="rates",outcome="retry"} 2`,
		`headrace_retry_attempts_total{dependency="rates",outcome="max_attempts"} 1`,
		`headrace_retry_attempts_total{dependency="payments",outcome="retry"} 0`,
		`headrace_retry_amplification_ratio{dependency="rates"} 1`,
		`headrace_calls_in_transaction_total{dependency="rates"} 0`,
		`headrace_reports_total{kind="degraded"} 1`,
	} {
		require.Contains(t, text, "\n"+want)
	}
}

// A child that hangs must leave the others and the reserve their time, and not all of its parent's be its own.
func TestCallRoute_DeclaredCallsHaveTheirBudgets(t *testing.T) {
	t.Parallel()
	const s = time.Second
	synctest.Test(t, func(t *testing.T) {
		_, route := goodCall(t)
		fraud := dependency(t, "fraud")
		route.Calls = []Outgoing{{route.Dependency, 4 * s}, {fraud, 3 * s}, {route.Dependency, 2 * s}}
		route.CallReserve = s
		hangs := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		began := time.Now()
		var ends []time.Duration
		ask := func(ctx context.Context) {
			for _, d := range []*downstream.Dependency{route.Dependency, fraud, route.Dependency} {
				require.ErrorIs(t, d.Do(ctx, hangs), context.DeadlineExceeded)
				ends = append(ends, time.Since(began))
			}
			require.ErrorIs(t, fraud.Do(ctx, hangs), fault.ErrNoTime, "all but the reserve is over")
			require.NoError(t, ctx.Err())
		}
		route.Call = func(ctx context.Context, _ Event[placed]) (receipt, error) { ask(ctx); return receipt{}, nil }
		route.Repeat = RepeatReconciled
		route.Reconcile = func(ctx context.Context, _ Event[placed]) (receipt, bool, error) {
			ask(ctx)
			return receipt{}, true, nil
		}
		run := func() {
			ctx, cancel := context.WithTimeout(downstream.WithPermit(t.Context(), downstream.Permit{Dependency: route.Dependency}), 10*s)
			defer cancel()
			_, err := route.spec().call.do(ctx, &record.Record{Event: new(placed)})
			require.NoError(t, err)
		}
		run()
		require.Equal(t, []time.Duration{4 * s, 7 * s, 9 * s}, ends, "asked by Reconcile")
		route.Reconcile, began, ends = nil, time.Now(), nil
		run()
		require.Equal(t, []time.Duration{4 * s, 7 * s, 9 * s}, ends, "asked by Call")
	})
}
