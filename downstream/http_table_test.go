package downstream_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// line is one line of the table: what happens on the wire, what it means, and how often the server read the request.
type httpLine struct {
	name string
	// serve makes the server; nil is one that never answers. prepare changes the client's transport and the request.
	serve   func(t *testing.T) *server
	prepare func(t *testing.T, tr *http.Transport, s *server)
	method  string // "" is POST
	header  string // a request header, "Name: value"
	noBody  bool
	noKey   bool
	timeout time.Duration // of the attempt

	class fault.Class
	after time.Duration
	reads int64
}

func status(code int, headers ...string) func(t *testing.T) *server {
	return func(t *testing.T) *server {
		t.Helper()
		return http1(t, func(c net.Conn, _ int64, _ *http.Request) bool { return reply(c, code, "a body", headers...) })
	}
}

func onRequest(f func(c net.Conn) bool) func(t *testing.T) *server {
	return func(t *testing.T) *server {
		t.Helper()
		return http1(t, func(c net.Conn, _ int64, _ *http.Request) bool { return f(c) })
	}
}

func onStream(f func(fr *http2.Framer, stream uint32) bool) func(t *testing.T) *server {
	return func(t *testing.T) *server {
		t.Helper()
		return http2Server(t, f)
	}
}

func hang(t *testing.T) *server {
	t.Helper()
	return http1(t, func(c net.Conn, _ int64, _ *http.Request) bool {
		_, err := c.Read(make([]byte, 1))
		return err == nil
	})
}

// silent accepts and says nothing, not even in TLS.
func silent(t *testing.T) *server {
	t.Helper()
	return listen(t, nil, func(_ *server, c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

func stream(code http2.ErrCode) func(t *testing.T) *server {
	return onStream(func(fr *http2.Framer, id uint32) bool { return fr.WriteRSTStream(id, code) == nil })
}

func goAway(behind uint32, code http2.ErrCode) func(t *testing.T) *server {
	return onStream(func(fr *http2.Framer, id uint32) bool {
		return fr.WriteGoAway(id-behind, code, []byte("REFUSED_STREAM")) == nil && behind > 0
	})
}

var httpTable = []httpLine{
	// Before there is a connection.
	{
		name: "Refused", serve: silent, class: fault.ClassTransient,
		prepare: func(t *testing.T, _ *http.Transport, s *server) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s.url = "http://" + l.Addr().String()
			require.NoError(t, l.Close())
		},
	},
	{
		name: "DialTimeout", serve: silent, class: fault.ClassTransient,
		prepare: func(_ *testing.T, tr *http.Transport, _ *server) {
			tr.DialContext = (&net.Dialer{Timeout: time.Nanosecond}).DialContext
		},
	},
	{
		name: "ContextInDial", serve: silent, timeout: 50 * time.Millisecond, class: fault.ClassTransient,
		prepare: func(_ *testing.T, tr *http.Transport, _ *server) {
			tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		},
	},
	{
		name: "WaitingForASlot", serve: hang, timeout: 50 * time.Millisecond, class: fault.ClassTransient, reads: 1, // the other's
		prepare: func(t *testing.T, tr *http.Transport, s *server) {
			tr.MaxConnsPerHost = 1
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url, http.NoBody)
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
			}()
			require.Eventually(t, func() bool { return s.reads.Load() == 1 }, 5*time.Second, time.Millisecond)
			t.Cleanup(func() { cancel(); <-gone })
		},
	},
	{
		name: "DNS", serve: silent, class: fault.ClassTransient,
		prepare: func(_ *testing.T, tr *http.Transport, s *server) {
			s.url = "http://payments.invalid"
			resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("no name server")
			}}
			tr.DialContext = (&net.Dialer{Resolver: resolver}).DialContext
		},
	},
	{
		name: "TLSHandshakeTimeout", serve: silent, class: fault.ClassTransient,
		prepare: func(_ *testing.T, tr *http.Transport, s *server) {
			s.url = strings.Replace(s.url, "http:", "https:", 1)
			tr.TLSHandshakeTimeout = 50 * time.Millisecond
		},
	},
	// Two sides that do not accept each other.
	{name: "UnknownCA", serve: secure(tls.NoClientCert), class: fault.ClassUnavailable},
	{
		name: "NotTLS", class: fault.ClassUnavailable,
		serve: func(t *testing.T) *server {
			return listen(t, nil, func(_ *server, c net.Conn) {
				_, _ = c.Read(make([]byte, 1<<10))
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			})
		},
		prepare: func(_ *testing.T, _ *http.Transport, s *server) { s.url = strings.Replace(s.url, "http:", "https:", 1) },
	},
	{
		name: "ClientCertificateRefused", serve: secure(tls.RequireAnyClientCert), class: fault.ClassUnavailable,
		prepare: func(_ *testing.T, tr *http.Transport, s *server) { tr.TLSClientConfig = s.tls },
	},
	{name: "401", serve: status(401), class: fault.ClassUnavailable, reads: 1},
	{
		name: "407ToConnect", serve: status(407), class: fault.ClassUnavailable, reads: 1,
		prepare: func(t *testing.T, tr *http.Transport, s *server) {
			proxy, err := url.Parse(s.url)
			require.NoError(t, err)
			tr.Proxy = http.ProxyURL(proxy)
			s.url = "https://payments.invalid"
		},
	},
	{name: "407", serve: status(407), class: fault.ClassUnavailable, reads: 1},
	// On a connection, before the request.
	{
		name: "ResetBeforeTheWrite", serve: func(t *testing.T) *server {
			return listen(t, nil, func(_ *server, c net.Conn) { reset(c) })
		},
		header: "Long: " + strings.Repeat("x", 1<<16), class: fault.ClassTransient,
		prepare: func(_ *testing.T, tr *http.Transport, _ *server) {
			tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				if err == nil {
					_, _ = c.Read(make([]byte, 1)) // until the reset is here
				}
				return c, err
			}
		},
	},
	// The context ended while the request was written: over HTTP/2 nobody knows how far it came.
	{
		name: "ContextWhileWriting", serve: silent, timeout: 200 * time.Millisecond, class: fault.ClassAmbiguous,
		header: "Long: " + strings.Repeat("x", 1<<16),
		prepare: func(_ *testing.T, tr *http.Transport, _ *server) {
			tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &stuck{c, make(chan struct{})}, err
			}
		},
	},
	// After it.
	{
		name: "ClosedUnread", class: fault.ClassAmbiguous, serve: func(t *testing.T) *server {
			return listen(t, nil, func(_ *server, c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
		},
	},
	{name: "ClosedAfterTheRequest", serve: onRequest(func(net.Conn) bool { return false }), class: fault.ClassAmbiguous, reads: 1},
	{name: "ClosedAfterTheRequestWithoutAKey", noKey: true, serve: onRequest(func(net.Conn) bool { return false }), class: fault.ClassAmbiguous, reads: 1},
	{name: "ClosedAfterASafeRequest", method: http.MethodGet, serve: onRequest(func(net.Conn) bool { return false }), class: fault.ClassTransient, reads: 1},
	{name: "ResetAfterTheRequest", serve: onRequest(reset), class: fault.ClassAmbiguous, reads: 1},
	{
		name: "ResponseHeaderTimeout", serve: hang, class: fault.ClassAmbiguous, reads: 1,
		prepare: func(_ *testing.T, tr *http.Transport, _ *server) { tr.ResponseHeaderTimeout = 50 * time.Millisecond },
	},
	{name: "ContextAfterTheRequest", serve: hang, timeout: 500 * time.Millisecond, class: fault.ClassAmbiguous, reads: 1},
	{
		name: "ClosedInTheStatusLine", class: fault.ClassAmbiguous, reads: 1,
		serve: onRequest(func(c net.Conn) bool { _, _ = io.WriteString(c, "HTTP/1.1 20"); return false }),
	},
	{
		name: "ClosedInsteadOf100", header: "Expect: 100-continue", class: fault.ClassAmbiguous, reads: 1,
		serve:   onRequest(func(net.Conn) bool { return false }),
		prepare: func(_ *testing.T, tr *http.Transport, _ *server) { tr.ExpectContinueTimeout = 10 * time.Second },
	},
	{
		name: "BodyCut", class: fault.ClassAmbiguous, reads: 1,
		serve: onRequest(func(c net.Conn) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			return false
		}),
	},
	{
		name: "BodyHangs", class: fault.ClassAmbiguous, reads: 1, timeout: 200 * time.Millisecond,
		serve: onRequest(func(c net.Conn) bool {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			return err == nil
		}),
	},
	// HTTP/2.
	{name: "H2StreamError", serve: stream(http2.ErrCodeInternal), class: fault.ClassAmbiguous, reads: 1},
	{name: "H2StreamCancelled", serve: stream(http2.ErrCodeCancel), class: fault.ClassAmbiguous, reads: 1},
	{name: "H2ConnectionLost", serve: onStream(func(*http2.Framer, uint32) bool { return false }), class: fault.ClassAmbiguous, reads: 1},
	{name: "H2GoAwayAtThisStream", serve: goAway(0, http2.ErrCodeNo), class: fault.ClassAmbiguous, reads: 1},
	{name: "H2GoAwayWithAnErrorAtThisStream", serve: goAway(0, http2.ErrCodeInternal), class: fault.ClassAmbiguous, reads: 1},
	{name: "H2RefusedStream", serve: stream(http2.ErrCodeRefusedStream), class: fault.ClassTransient, reads: 1},
	{name: "H2RefusedStreamWithoutABody", noBody: true, serve: stream(http2.ErrCodeRefusedStream), class: fault.ClassTransient, reads: 1},
	{name: "H2GoAwayBeforeThisStream", serve: goAway(1, http2.ErrCodeNo), class: fault.ClassTransient, reads: 1},
	{name: "H2GoAwayBeforeThisStreamWithoutABody", noBody: true, serve: goAway(1, http2.ErrCodeNo), class: fault.ClassTransient, reads: 1},
	{name: "H2GoAwayWithAnErrorBeforeThisStream", serve: goAway(1, http2.ErrCodeInternal), class: fault.ClassTransient, reads: 1},
	// Answers.
	{name: "409UnderAKey", serve: status(409), class: fault.ClassBusy, reads: 1},
	{name: "409", noKey: true, serve: status(409), class: fault.ClassPermanent, reads: 1},
	{name: "422UnderAKey", serve: status(422), class: fault.ClassAmbiguous, reads: 1},
	{name: "422", noKey: true, serve: status(422), class: fault.ClassPermanent, reads: 1},
	{name: "409Replayed", serve: status(409, "Idempotency-Replayed: true"), class: fault.ClassPermanent, reads: 1},
	{name: "422Replayed", serve: status(422, "Idempotency-Replayed: true"), class: fault.ClassPermanent, reads: 1},
	{name: "503Replayed", serve: status(503, "Idempotency-Replayed: true"), class: fault.ClassTransient, reads: 1},
	{name: "402", serve: status(402), class: fault.ClassPermanent, reads: 1},
	{name: "425", serve: status(425), class: fault.ClassTransient, reads: 1},
	{name: "429", serve: status(429, "Retry-After: 7"), class: fault.ClassTransient, after: 7 * time.Second, reads: 1},
	{
		name: "503WithADate", noKey: true, class: fault.ClassTransient, after: 30 * time.Second, reads: 1,
		serve: status(503, "Date: Sun, 01 Mar 2026 12:00:00 GMT", "Retry-After: Sun, 01 Mar 2026 12:00:30 GMT"),
	},
	{name: "503", noKey: true, serve: status(503), class: fault.ClassAmbiguous, reads: 1},
	{name: "503UnderAKey", serve: status(503), class: fault.ClassTransient, reads: 1},
	{name: "503ToAPut", noKey: true, method: http.MethodPut, serve: status(503), class: fault.ClassTransient, reads: 1},
	{name: "408", noKey: true, serve: status(408), class: fault.ClassAmbiguous, reads: 1},
	{name: "408UnderAKey", serve: status(408), class: fault.ClassTransient, reads: 1},
	{name: "500UnderAKey", serve: status(500), class: fault.ClassAmbiguous, reads: 1},
	{name: "502ToAGet", method: http.MethodGet, serve: status(502), class: fault.ClassTransient, reads: 1},
}

// stuck is a connection that takes nothing until it is closed.
type stuck struct {
	net.Conn
	closed chan struct{}
}

func (c *stuck) Write([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

func (c *stuck) Close() error {
	close(c.closed)
	return c.Conn.Close()
}

// secure is a server whose certificate nobody knows but s.tls.
func secure(auth tls.ClientAuthType) func(t *testing.T) *server {
	return func(t *testing.T) *server {
		t.Helper()
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.TLS = &tls.Config{ClientAuth: auth, MinVersion: tls.VersionTLS13}
		s.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return &server{url: s.URL, tls: s.Client().Transport.(*http.Transport).TLSClientConfig}
	}
}

// TestHTTPTable pins what net/http of this Go version does, and what we make of it: what an event on the wire means to a
// record, and that one request is read once.
func TestHTTPTable(t *testing.T) {
	t.Parallel()
	for _, l := range httpTable {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := l.serve(t)
			tr := &http.Transport{ForceAttemptHTTP2: s.tls != nil, TLSClientConfig: s.tls}
			if l.name == "UnknownCA" {
				tr.TLSClientConfig = nil
			}
			if l.prepare != nil {
				l.prepare(t, tr, s)
			}
			d := payments(t)
			ctx := l.context(t, d)
			err := l.send(ctx, t, s, &http.Client{Transport: d.Transport(tr)})
			tr.CloseIdleConnections()

			require.Error(t, err)
			f := new(fault.Classifier).ClassifyCall(ctx, err)
			require.Equal(t, l.class.String(), f.Class.String(), "%v by %q", err, f.Rule)
			require.Equal(t, l.after, f.RetryAfter)
			require.Eventually(t, func() bool { return s.reads.Load() >= l.reads }, 5*time.Second, time.Millisecond)
			require.Equal(t, l.reads, s.reads.Load(), "requests that the server read; %v", err)
			require.NotContains(t, f.Rule+fmt.Sprint(errors.Unwrap(err)), "secret")
			if l.class == fault.ClassUnavailable {
				require.Equal(t, "payments", f.Dependency)
			}
		})
	}
}

// context is that of a call for a record.
func (l httpLine) context(t *testing.T, d *downstream.Dependency) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	if l.timeout > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), l.timeout)
	}
	t.Cleanup(cancel)
	if l.noKey { // as in Do: counted, and nobody's
		ctx = counted(ctx, d)
	} else {
		ctx = downstream.WithPermit(ctx, downstream.Permit{Dependency: d, Group: "billing", Route: "charge", ID: uuid.Max})
	}
	return ctx
}

// counted gives the context that an operation of Do has.
func counted(ctx context.Context, d *downstream.Dependency) (inside context.Context) {
	_ = d.Do(ctx, func(ctx context.Context) error {
		inside = ctx //nolint:fatcontext // once
		return nil
	})
	return inside
}

// send is what a handler does.
func (l httpLine) send(ctx context.Context, t *testing.T, s *server, client *http.Client) error {
	t.Helper()
	var body io.Reader = strings.NewReader("an order")
	if l.noBody || l.method == http.MethodGet {
		body = http.NoBody
	}
	method := l.method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/charge?token=secret", body)
	require.NoError(t, err)
	if name, value, ok := strings.Cut(l.header, ": "); ok {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if err := downstream.Check(resp); err != nil {
		return err
	}
	_, err = io.ReadAll(resp.Body)
	return err
}
