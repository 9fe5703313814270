package downstream_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
)

// What Transport adds to its base: "nothing" answers at once, so that all there is to see is what stands around it;
// "loopback" is what a call costs at the very least.
func BenchmarkTransport(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "paid")
	}))
	b.Cleanup(server.Close)
	d := payments(b)
	inRoute := downstream.WithPermit(b.Context(), downstream.Permit{
		Dependency: d, Group: "billing", Route: "charge", ID: uuid.New(),
	})
	for _, to := range []struct {
		name string
		base http.RoundTripper
	}{
		{"nothing", instant{}},
		{"loopback", server.Client().Transport},
	} {
		b.Run(to.name+"/bare", func(b *testing.B) { posts(b, b.Context(), to.base, server.URL) })
		b.Run(to.name+"/bare with a deadline", func(b *testing.B) { posts(b, b.Context(), timed{to.base}, server.URL) })
		b.Run(to.name+"/in a route", func(b *testing.B) { posts(b, inRoute, d.Transport(to.base), server.URL) })
		b.Run(to.name+"/outside", func(b *testing.B) { posts(b, b.Context(), d.Transport(to.base), server.URL) })
	}
}

// posts sends one order after the other and reads what is answered, as a handler does.
func posts(b *testing.B, ctx context.Context, rt http.RoundTripper, url string) {
	b.Helper()
	client := &http.Client{Transport: rt}
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("an order"))
		require.NoError(b, err)
		resp, err := client.Do(req)
		require.NoError(b, err)
		require.NoError(b, downstream.Check(resp))
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
	}
}

// timed is what any client with a timeout has around its base: a timer for each request, until its answer is read.
type timed struct{ base http.RoundTripper }

func (t timed) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), 10*time.Second)
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancels{resp.Body, cancel}
	return resp, nil
}

type cancels struct {
	io.ReadCloser

	cancel context.CancelFunc
}

func (c *cancels) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// instant answers without a network.
type instant struct{}

func (instant) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("paid")), Request: req}, nil
}
