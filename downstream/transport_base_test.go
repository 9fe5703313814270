package downstream_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
)

// With the two idle connections of http.DefaultTransport nearly every one of eight calls side by side dials anew.
func TestTransport_WithoutABaseKeepsAConnectionForEachPlace(t *testing.T) {
	t.Parallel()
	const places, rounds = 8, 5
	var together sync.WaitGroup // all calls of a round are out at once
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		together.Done()
		together.Wait()
	}))
	defer server.Close()
	d, err := downstream.New(downstream.Config{Name: "payments", MaxConcurrent: places})
	require.NoError(t, err)
	client := &http.Client{Transport: d.Transport(nil)}
	defer client.CloseIdleConnections()

	var dialled atomic.Int32
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			dialled.Add(1)
		}
	}}
	for range rounds {
		together.Add(places)
		var calls sync.WaitGroup
		for range places {
			calls.Go(func() {
				req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, server.URL, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					t.Error(err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	}
	require.LessOrEqual(t, dialled.Load(), int32(2*places))
}
