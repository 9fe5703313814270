package downstream_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestInATransaction(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, d *downstream.Dependency) error{
		"Do": func(ctx context.Context, d *downstream.Dependency) error {
			return d.Do(ctx, func(context.Context) error { return nil })
		},
		"Run": func(ctx context.Context, d *downstream.Dependency) error {
			_, err := downstream.Run(ctx, d, downstream.Operation[string]{Do: new(sends).do})
			return err
		},
		"Transport": func(ctx context.Context, d *downstream.Dependency) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://payments.test/", http.NoBody)
			if err != nil {
				return err
			}
			resp, err := d.Transport(statuses(200)).RoundTrip(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		},
	}
	type tx struct{ pgx.Tx }
	inside := map[string]context.Context{
		"Executed": dedup.WithTx(t.Context(), tx{}),
		"Queued":   dedup.WithPending(t.Context(), &pgx.Batch{}),
	}
	for name, call := range calls {
		for how, ctx := range inside {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				var counted []record.CallInfo
				var told []record.Report
				hooks := &record.Hooks{
					OnCallInTransaction: func(i record.CallInfo) { counted = append(counted, i) },
					OnReport:            func(r record.Report) { told = append(told, r) },
				}
				d := payments(t, func(c *downstream.Config) { c.Hooks = hooks })
				require.NoError(t, call(ctx, d))
				require.NoError(t, call(ctx, d), "what has worked goes on")
				require.Len(t, counted, 2)
				require.Equal(t, "payments", counted[0].Dependency)
				require.Len(t, told, 1, "and is told once")
				require.Equal(t, record.ReportCallInTransaction, told[0].Kind)

				strict := payments(t, func(c *downstream.Config) { c.RefuseInTransaction = true })
				err := call(ctx, strict)
				require.ErrorIs(t, err, downstream.ErrInTransaction)
				require.ErrorContains(t, err, "payments: ")
				require.NoError(t, call(context.WithoutCancel(t.Context()), strict))
			})
		}
	}
}

func TestDeadlineHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := payments(t, func(c *downstream.Config) { c.DeadlineHeader = "X-Time-Left" })
		var sent []string
		b := newBase(func(_ int, req *http.Request) (*http.Response, error) {
			sent = append(sent, req.Header.Get("X-Time-Left"))
			return answer(req, 200)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		req := request(ctx, t, http.MethodPost, withKey)
		for range 2 {
			_, err := statusOf(t, d, b, req.Clone(ctx))
			require.NoError(t, err)
			elapse(time.Second)
		}
		_, err := statusOf(t, d, b, request(downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d}), t, http.MethodGet))
		require.NoError(t, err)
		require.Equal(t, []string{"3000", "2000", ""}, sent, "and nothing where there is no deadline")
		require.Empty(t, req.Header.Get("X-Time-Left"), "the caller's request stays as it is")
	})
}

func TestRetryHooks(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name   string
		method string
		codes  []int
		told   []string
	}{
		{"Success", http.MethodGet, []int{502, 502, 200}, []string{"retry", "retry", "success"}},
		{"AtOnce", http.MethodGet, []int{200}, nil},
		{"Exhausted", http.MethodGet, []int{502}, []string{"retry", "retry", "max_attempts"}},
		{"Unknown", http.MethodPost, []int{502}, []string{"unknown_outcome"}},
		{"AnAnswer", http.MethodGet, []int{404}, []string{"not_transient"}},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told []string
				d := payments(t, func(c *downstream.Config) {
					c.Hooks = &record.Hooks{OnRetry: func(i record.RetryInfo) { told = append(told, i.Outcome) }}
				})
				_, err := statusOf(t, d, statuses(r.codes...), request(t.Context(), t, r.method))
				require.NoError(t, err)
				require.Equal(t, r.told, told)
			})
		})
	}
}

func TestAmplification(t *testing.T) {
	t.Parallel()
	never := func(c *downstream.Config) { c.Breaker.MinRequests = 1e6 }
	get := func(t *testing.T, d *downstream.Dependency, n int) {
		t.Helper()
		b := statuses(502)
		for range n {
			_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
			require.NoError(t, err)
		}
	}
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t, never)) })
		})
	}
	bubble("AnOutageIsAmplifiedByATenthInSteadyState", func(t *testing.T, d *downstream.Dependency) {
		get(t, d, 100)
		elapse(time.Minute)
		get(t, d, 1000)
		require.InDelta(t, 1.1, d.Amplification(), 0.01)
	})
	bubble("LittleSaysNothing", func(t *testing.T, d *downstream.Dependency) {
		get(t, d, 1)
		require.InDelta(t, 1, d.Amplification(), 0)
	})
	bubble("RepeatsOfARouteCount", func(t *testing.T, d *downstream.Dependency) {
		for range 20 {
			after := downstream.Streak{}
			for range 3 {
				c, err := d.BeginAgain("charge", limit, after)
				require.NoError(t, err)
				c.End(true, fault.Fault{Class: fault.ClassTransient})
				after = c.Streak()
			}
		}
		require.InDelta(t, 3, d.Amplification(), 0)
		elapse(time.Minute)
		require.InDelta(t, 1, d.Amplification(), 0, "it is forgotten")
	})
}

func TestSpans(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	synctest.Test(t, func(t *testing.T) {
		d := payments(t, func(c *downstream.Config) { c.Tracer = tracer })
		_, err := statusOf(t, d, statuses(502, 200), request(t.Context(), t, http.MethodGet))
		require.NoError(t, err)
		_, err = statusOf(t, d, statuses(502), request(t.Context(), t, http.MethodPost))
		require.NoError(t, err)
		require.Error(t, d.Do(t.Context(), func(context.Context) error { return errDown }))
		_, err = downstream.Run(t.Context(), d, downstream.Operation[string]{Do: (&sends{errs: []error{errDown}}).do})
		require.NoError(t, err)
		inRoute := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d})
		_, err = downstream.Run(inRoute, d, downstream.Operation[string]{Do: new(sends).do})
		require.NoError(t, err)
		begin(t, d).End(true, fault.Fault{Class: fault.ClassTransient}) // a route's, and the third failure of five
		require.ErrorIs(t, d.Do(t.Context(), func(context.Context) error { return nil }), fault.ErrBreakerOpen)
	})
	all := spans.Ended()
	require.Len(t, all, 5, "one a call, and none in a route")
	event := func(span, n int, key string) string {
		for _, a := range all[span].Events()[n].Attributes {
			if string(a.Key) == key {
				return a.Value.String()
			}
		}
		return ""
	}
	require.Equal(t, "2", event(0, 0, "headrace.attempt"))
	require.Equal(t, "transient", event(0, 0, "headrace.class"), "why the one before was not enough")
	require.Equal(t, "unknown_outcome", event(1, 0, "headrace.reason"))
	require.Equal(t, "ambiguous", event(1, 0, "headrace.class"))
	for i, want := range []struct {
		code   codes.Code
		text   string
		events []string
	}{
		{codes.Unset, "", []string{"retry"}},
		{codes.Error, record.CallFailed, []string{"not tried again"}},
		{codes.Error, record.CallFailed, nil},
		{codes.Unset, "", []string{"retry"}},
		{codes.Error, record.CallRefused, nil},
	} {
		require.Equal(t, "call payments", all[i].Name())
		require.Equal(t, sdktrace.Status{Code: want.code, Description: want.text}, all[i].Status())
		require.Len(t, all[i].Events(), len(want.events))
		for j, name := range want.events {
			require.Equal(t, name, all[i].Events()[j].Name)
		}
	}
}

func TestPresets(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name          string
		breaker       downstream.BreakerConfig
		calls, failed int
		opens         bool
	}{
		{"Critical", downstream.Critical(), 10, 3, true},
		{"CriticalOfTooFew", downstream.Critical(), 9, 9, false},
		{"CriticalOfTooFewFailures", downstream.Critical(), 10, 2, false},
		{"Normal", downstream.Normal(), 20, 10, true},
		{"NormalOfTooFewFailures", downstream.Normal(), 20, 9, false},
		{"TheDefaultIsNormal", downstream.BreakerConfig{}, 20, 10, true},
		{"Tolerant", downstream.Tolerant(), 30, 21, true},
		{"TolerantOfTooFewFailures", downstream.Tolerant(), 30, 20, false},
		{"ATripOfOnesOwn", downstream.BreakerConfig{Trip: func(n downstream.BreakerCounts) bool {
			return n.InARow == 2 && n.Successes == 1 && n.Failures == 2
		}}, 3, 2, true},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			d := payments(t, func(c *downstream.Config) { c.Breaker = r.breaker })
			for i := range r.calls {
				c := begin(t, d)
				c.End(i >= r.calls-r.failed, fault.Fault{Class: fault.ClassTransient})
			}
			require.Equal(t, r.opens, d.State() == record.BreakerOpen)
		})
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	d := payments(t)
	require.NoError(t, d.Do(t.Context(), func(context.Context) error {
		require.Equal(t, 1, d.InUse())
		return nil
	}))
	require.Zero(t, d.InUse())
}
