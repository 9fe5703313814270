package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// TestCall_KeyNotSent: a route that promises that its keys are heeded, and sends none, hears of it.
func TestCall_KeyNotSent(t *testing.T) {
	t.Parallel()
	kinds := func(t *testing.T, keyed bool, do doFunc) []string {
		t.Helper()
		b := newBench(t)
		b.calls(t, do)
		b.rt.Call.Keyed = keyed
		b.run(t, nothing, recs(20, ownKey)...)
		return b.reports.kinds()
	}
	told := []string{record.ReportKeyNotSent}

	bubble(t, "IsReportedOnce", func(t *testing.T) {
		require.Equal(t, told, kinds(t, true, paid))
		require.Empty(t, kinds(t, false, paid), "a route whose calls are safe")
	})
	bubble(t, "IsReportedOfAFailedCallToo", func(t *testing.T) {
		var tries atomic.Int32
		require.Equal(t, told, kinds(t, true, func(context.Context, *record.Record) (any, error) {
			if tries.Add(1) == 1 {
				return nil, fault.Ambiguous(errBoom)
			}
			return nil, fault.Skip("enough")
		}))
	})
	bubble(t, "SaysNothingOfWhoAskedNobody", func(t *testing.T) {
		for _, err := range []error{fault.Skip("not ours"), fault.Permanent(errBoom)} {
			require.Empty(t, kinds(t, true, func(context.Context, *record.Record) (any, error) { return nil, err }))
		}
	})
	bubble(t, "NorOfARouteThatAsksOnlyForSome", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if r.Offset == 0 {
				downstream.IdempotencyKey(ctx, "charge")
			}
			return "paid, or nothing to pay", nil
		})
		b.rt.Call.Keyed = true
		b.run(t, nothing, recs(20, oneKey)...)
		require.Empty(t, b.reports.kinds())
	})
	bubble(t, "NorOfAFewThatNeededNoCall", func(t *testing.T) {
		var asked atomic.Int32
		require.Empty(t, kinds(t, true, func(context.Context, *record.Record) (any, error) {
			if asked.Add(1) < 10 {
				return "nothing to pay", nil
			}
			return nil, fault.Skip("enough")
		}))
	})
	bubble(t, "NorOfWhoTookTheKey", func(t *testing.T) {
		require.Empty(t, kinds(t, true, func(ctx context.Context, _ *record.Record) (any, error) {
			_, ok := downstream.IdempotencyKey(ctx, "charge")
			require.True(t, ok)
			return "paid", nil
		}))
	})
	t.Run("NorOfTransport", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(server.Close)
		d, err := downstream.New(downstream.Config{Name: "payments", RefuseInTransaction: true})
		require.NoError(t, err)
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d})
			require.False(t, downstream.KeyTaken(ctx))
			req, err := http.NewRequestWithContext(ctx, method, server.URL, nil)
			require.NoError(t, err)
			client := http.Client{Transport: d.Transport(server.Client().Transport)}
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.True(t, downstream.KeyTaken(ctx), method)
		}
	})
}
