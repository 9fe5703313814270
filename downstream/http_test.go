package downstream_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// closesIdle answers one request of each connection, when all that are to be idle have come, and closes it on reading a
// second: a keep-alive that ended in the moment when the client used it.
func closesIdle(t *testing.T, idle int64) *server {
	t.Helper()
	all := make(chan struct{})
	var first atomic.Int64
	return http1(t, func(c net.Conn, n int64, _ *http.Request) bool {
		if n > idle {
			return false
		}
		if first.Add(1) == idle {
			close(all)
		}
		<-all
		return reply(c, 200, "")
	})
}

func makeIdle(t *testing.T, tr *http.Transport, s *server, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, http.NoBody)
			if err != nil {
				return
			}
			resp, err := tr.RoundTrip(req)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(n), s.reads.Load())
}

// One POST over 20 idle connections that the server closes after reading was read 20 times: net/http sends what carries
// the canonical name of an idempotency key again by itself.
func TestOneCallIsOneRequest(t *testing.T) {
	t.Parallel()
	const idle = 20
	post := func(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper, ctx context.Context, change ...func(*http.Request)) (reads int64) {
		t.Helper()
		s := closesIdle(t, idle)
		tr := &http.Transport{MaxIdleConnsPerHost: idle}
		defer tr.CloseIdleConnections()
		makeIdle(t, tr, s, idle)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader("an order"))
		require.NoError(t, err)
		for _, f := range change {
			f(req)
		}
		resp, err := wrap(tr).RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		require.Error(t, err)
		return s.reads.Load() - idle
	}

	t.Run("NotSoWithNetHTTPAlone", func(t *testing.T) {
		t.Parallel()
		plain := func(rt http.RoundTripper) http.RoundTripper { return rt }
		require.Greater(t, post(t, plain, t.Context(), withKey), int64(1), "net/http has changed: simplify withKey")
	})
	t.Run("WithTheRecordsKey", func(t *testing.T) {
		t.Parallel()
		d := payments(t)
		ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d, ID: uuid.Max})
		require.Equal(t, int64(1), post(t, d.Transport, ctx))
	})
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		t.Run("WithAKeyOfTheCallers/"+name, func(t *testing.T) {
			t.Parallel()
			d := payments(t)
			own := func(req *http.Request) { req.Header.Set(name, "k-7") }
			require.Equal(t, int64(1), post(t, d.Transport, counted(t.Context(), d), own))
		})
	}
}

// A server that says GOAWAY to the first request of each connection was connected to 5,623 times in 1.5s by one request.
func TestGoAwayIsNoStorm(t *testing.T) {
	t.Parallel()
	for method, body := range map[string]io.Reader{http.MethodPost: strings.NewReader("an order"), http.MethodGet: nil} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s := goAway(1, http2.ErrCodeNo)(t)
			tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: s.tls}
			defer tr.CloseIdleConnections()
			d := payments(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(counted(ctx, d), method, s.url, body)
			require.NoError(t, err)
			resp, err := d.Transport(tr).RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			require.Error(t, err)
			require.NoError(t, ctx.Err(), "it ended by itself")
			require.Less(t, s.conns.Load(), int64(20))
			require.Equal(t, fault.ClassTransient, new(fault.Classifier).ClassifyCall(ctx, err).Class)
		})
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	d := payments(t)
	for name, context := range map[string]func(ctx context.Context, d *downstream.Dependency) context.Context{
		"AfterCheck":         counted,
		"AfterTriesOfOurOwn": func(ctx context.Context, _ *downstream.Dependency) context.Context { return ctx },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			s := http1(t, func(c net.Conn, _ int64, _ *http.Request) bool {
				if n.Add(1)%2 == 1 {
					return reply(c, 503, strings.Repeat("x", 60<<10), "Retry-After: 0")
				}
				return reply(c, 200, "a body")
			})
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			for range 6 {
				req, err := http.NewRequestWithContext(context(t.Context(), d), http.MethodGet, s.url, http.NoBody)
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: d.Transport(tr)}).Do(req)
				require.NoError(t, err)
				if downstream.Check(resp) == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
				}
				require.NoError(t, resp.Body.Close())
			}
			require.GreaterOrEqual(t, n.Load(), int64(6))
			require.Equal(t, int64(1), s.conns.Load())
		})
	}
}

func TestALongFailureIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.CopyN(w, zeros{}, 8<<20)
	}))
	t.Cleanup(srv.Close)
	resp, err := payments(t).Transport(srv.Client().Transport).RoundTrip(func() *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, http.NoBody)
		require.NoError(t, err)
		return req
	}())
	require.NoError(t, err)
	require.NoError(t, resp.Request.Context().Err())
	require.EqualError(t, downstream.Check(resp), "payments: 418 I'm a teapot")
	require.Error(t, resp.Request.Context().Err(), "it is closed")
	kept, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Len(t, kept, 64<<10)
	require.NoError(t, resp.Body.Close())
}

// A read was cut at 793 kB of 1 MB when the attempt's context ended with RoundTrip.
func TestALongBodyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, zeros{}, size)
	}))
	t.Cleanup(srv.Close)
	d := payments(t)
	client := srv.Client()
	client.Transport = d.Transport(client.Transport)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // read below
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.Equal(t, int64(size), n)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	d := payments(t)
	permit := downstream.Permit{Dependency: d, Group: "billing", Route: "charge", ID: uuid.MustParse("0190b5a2-0000-7000-8000-000000000007")}
	ctx := downstream.WithPermit(t.Context(), permit)
	// sent gives the keys that a server sees.
	sent := func(t *testing.T, ctx context.Context, method string, change ...func(*http.Request)) []string {
		t.Helper()
		var keys []string
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			keys = req.Header.Values(fault.IdempotencyKey)
		}))
		defer srv.Close()
		req := request(ctx, t, method, change...)
		before := req.Header.Clone()
		req.URL.Host = srv.Listener.Addr().String()
		_, err := statusOf(t, d, srv.Client().Transport, req)
		require.NoError(t, err)
		require.Equal(t, before, req.Header, "a RoundTripper leaves the request alone")
		return keys
	}

	t.Run("IsForEver", func(t *testing.T) {
		t.Parallel()
		key, ok := downstream.IdempotencyKey(ctx, "POST /charge")
		require.True(t, ok)
		require.Equal(t, uuid.Version(5), uuid.MustParse(key).Version())
		require.Equal(t, "efebc084-f1e3-5602-aead-52ff71395b9a", key, "calls in flight would be executed twice over a deployment")
	})
	t.Run("DiffersInEachPart", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for _, p := range []downstream.Permit{
			permit,
			{Group: "billin", Route: "gcharge", ID: permit.ID},
			{Group: "billing", Route: "refund", ID: permit.ID},
			{Group: "billing", Route: "charge", ID: uuid.Max},
		} {
			for _, operation := range []string{"", "POST /charge", "POST /refund"} {
				key, ok := downstream.IdempotencyKey(downstream.WithPermit(t.Context(), p), operation)
				require.True(t, ok)
				seen[key] = true
			}
		}
		require.Len(t, seen, 12)
	})
	t.Run("IsSentWithWhatIsNotSafe", func(t *testing.T) {
		t.Parallel()
		key, _ := downstream.IdempotencyKey(ctx, "POST /charge")
		require.Equal(t, []string{key}, sent(t, ctx, http.MethodPost))
		require.Equal(t, []string{key}, sent(t, ctx, http.MethodPost), "the same again")
		require.Empty(t, sent(t, ctx, http.MethodGet))
		named, _ := downstream.IdempotencyKey(ctx, "second charge")
		require.Equal(t, []string{named}, sent(t, downstream.WithOperation(ctx, "second charge"), http.MethodPost))
	})
	t.Run("TakesFromNetHTTPWhatItWouldSendAgain", func(t *testing.T) {
		t.Parallel()
		b := newBase(func(_ int, req *http.Request) (*http.Response, error) {
			require.Nil(t, req.GetBody)
			require.NotContains(t, req.Header, fault.IdempotencyKey)
			return answer(req, 200)
		})
		req := request(ctx, t, http.MethodPost)
		_, err := statusOf(t, d, b, req)
		require.NoError(t, err)
		require.NotNil(t, req.GetBody)
	})
	t.Run("OfTheCallerIsKept", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"k-7"}, sent(t, ctx, http.MethodPost, withKey))
		require.Equal(t, []string{"k-7"}, sent(t, t.Context(), http.MethodPost, withKey))
	})
	t.Run("NoneOutsideOfARoute", func(t *testing.T) {
		t.Parallel()
		_, ok := downstream.IdempotencyKey(t.Context(), "POST /charge")
		require.False(t, ok)
		require.Empty(t, sent(t, t.Context(), http.MethodPost))
	})
}

func TestSwitchedProtocolsKeepTheirConnection(t *testing.T) {
	t.Parallel()
	s := http1(t, func(c net.Conn, _ int64, _ *http.Request) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.CopyN(c, c, 4)
		return false
	})
	d := payments(t)
	tr := &http.Transport{}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := d.Transport(tr).RoundTrip(req) //nolint:bodyclose // it is conn
	require.NoError(t, err)
	conn := resp.Body.(io.ReadWriteCloser)
	defer conn.Close() //nolint:errcheck // read below
	_, err = io.WriteString(conn, "ping")
	require.NoError(t, err)
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "ping", string(got))
}
