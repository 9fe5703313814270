package fault_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

func TestNetwork(t *testing.T) {
	t.Parallel()
	transient := func(name, rule string, err error) row {
		return row{name: name, err: err, class: fault.ClassTransient, rule: rule}
	}
	ambiguous := func(name, rule string, err error) row {
		return row{name: name, err: err, class: fault.ClassAmbiguous, rule: rule}
	}
	check(t, []row{
		transient("DialRefused", "dial", dialError(t.Context(), t)),
		transient("DialUnderAnExpiredContext", "dial", dialError(expired(t, nil), t)),
		transient("DNS", "dns", &net.OpError{Op: "dial", Err: &net.DNSError{Name: "nowhere.invalid", IsNotFound: true}}),
		transient("Errno"+syscall.ECONNREFUSED.Error(), "refused", syscall.ECONNREFUSED),
		transient("NoFileDescriptorsLeft", "refused", syscall.EMFILE),
		transient("SocksProxyRefused", "dial", &net.OpError{Op: "socks connect", Err: errPlain}),
		ambiguous("ResetWhileReading", "connection lost", readError(t, readAndReset)),
		ambiguous("ClosedWhileReading", "connection lost", readError(t, readOnce)),
		ambiguous("ReadDeadline", "timeout", readDeadlineError(t)),
		ambiguous("UseOfAClosedConnection", "connection lost", closedReadError(t)),
		ambiguous("UnexpectedEOF", "connection lost", io.ErrUnexpectedEOF),
		ambiguous("ClosedPipe", "connection lost", io.ErrClosedPipe),
		ambiguous("OSDeadline", "timeout", os.ErrDeadlineExceeded),
		ambiguous("Errno"+syscall.ECONNRESET.Error(), "connection lost", syscall.ECONNRESET),
		ambiguous("Errno"+syscall.EPIPE.Error(), "connection lost", os.NewSyscallError("write", syscall.EPIPE)),
		ambiguous("Errno"+syscall.ETIMEDOUT.Error(), "timeout", syscall.ETIMEDOUT),
		ambiguous("Errno"+syscall.EHOSTUNREACH.Error(), "connection lost", &net.OpError{Op: "read", Err: syscall.EHOSTUNREACH}),
	})
}

func TestHTTPTransport(t *testing.T) {
	t.Parallel()
	refused := closedPort(t)
	silentServer := serve(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	secure := quietTLS(t, nil)
	picky := quietTLS(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert})
	trusting := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server under test is ours
	plain := strings.TrimPrefix(plainServer(t).URL, "http://")

	check(t, []row{
		{name: "Refused", err: post(t, nil, "http://"+refused), class: fault.ClassTransient, rule: "dial"},
		{
			name: "TLSHandshakeTimeout", class: fault.ClassTransient, rule: "tls timeout",
			err: post(t, &http.Transport{TLSHandshakeTimeout: time.Millisecond}, "https://"+silentServer),
		},
		{
			name: "UnknownCA", class: fault.ClassUnavailable, dep: secure, rule: "certificate",
			err: post(t, nil, "https://"+secure),
		},
		{
			name: "ServerSpeaksNoTLS", class: fault.ClassUnavailable, dep: plain, rule: "no tls",
			err: post(t, nil, "https://"+plain),
		},
		{
			name: "ClientCertificateRefused", class: fault.ClassUnavailable, dep: picky, rule: "tls alert",
			err: post(t, trusting, "https://"+picky),
		},
		{
			name: "ResponseHeaderTimeout", class: fault.ClassTransient, rule: "deadline", split: true, call: fault.ClassAmbiguous,
			err: post(t, &http.Transport{ResponseHeaderTimeout: time.Millisecond}, "http://"+silentServer),
		},
		{name: "ClosedAfterTheRequest", err: post(t, nil, "http://"+serve(t, readOnce)), class: fault.ClassAmbiguous, rule: "connection lost"},
		{name: "ResetAfterTheRequest", err: post(t, nil, "http://"+serve(t, readAndReset)), class: fault.ClassAmbiguous, rule: "connection lost"},
		{name: "GarbledAnswer", err: post(t, nil, "http://"+serve(t, answerGarbage)), class: fault.ClassAmbiguous, rule: "http"},
		{name: "GarbledAnswerToAGet", err: get(t, "http://"+serve(t, answerGarbage)), class: fault.ClassTransient, rule: "safe http method"},
		{name: "BadURL", err: badURL(t), class: fault.ClassPermanent, rule: "bad url"},
		{
			name: "AVerbOfTheRoundTripper", class: fault.ClassUnavailable, dep: "payments", rule: "verb unavailable",
			err: post(t, sayer{}, "http://"+refused),
		},
	})

	t.Run("APeerWithoutANameIsTheNetwork", func(t *testing.T) {
		t.Parallel()
		err := &net.OpError{Op: "remote error", Err: errPlain}
		require.Equal(t, fault.Network, new(fault.Classifier).Classify(t.Context(), err).Dependency)
		err.Addr = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}
		require.Equal(t, "10.0.0.1:443", new(fault.Classifier).Classify(t.Context(), err).Dependency)
	})
}

// sayer is a RoundTripper that knows what its failure means.
type sayer struct{}

func (sayer) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fault.Unavailable(io.EOF, "payments")
}

func post(t *testing.T, rt http.RoundTripper, to string) error {
	t.Helper()
	return do(t, rt, http.MethodPost, to)
}

func get(t *testing.T, to string) error {
	t.Helper()
	return do(t, nil, http.MethodGet, to)
}

func do(t *testing.T, rt http.RoundTripper, method, to string) error {
	t.Helper()
	if rt == nil {
		rt = &http.Transport{}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader("{}"))
	require.NoError(t, err)
	client := http.Client{Transport: rt}
	resp, err := client.Do(req)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	client.CloseIdleConnections()
	require.Error(t, err)
	return err
}

func badURL(t *testing.T) error {
	t.Helper()
	host := "%zz"
	_, err := url.Parse("http://" + host)
	return err
}

func quietTLS(t *testing.T, config *tls.Config) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = config
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func plainServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s
}

func dialError(ctx context.Context, t *testing.T) error {
	t.Helper()
	_, err := new(net.Dialer).DialContext(ctx, "tcp", closedPort(t))
	return err
}

func dialServer(t *testing.T, session func(net.Conn)) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", serve(t, session))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func readError(t *testing.T, session func(net.Conn)) error {
	t.Helper()
	conn := dialServer(t, session)
	_, err := conn.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	return err
}

func readDeadlineError(t *testing.T) error {
	t.Helper()
	conn := dialServer(t, readAndReset)
	require.NoError(t, conn.SetReadDeadline(time.Unix(1, 0)))
	_, err := conn.Read(make([]byte, 1))
	return err
}

func closedReadError(t *testing.T) error {
	t.Helper()
	conn := dialServer(t, readAndReset)
	require.NoError(t, conn.Close())
	_, err := conn.Read(make([]byte, 1))
	return err
}

// readOnce reads before it closes: a close with bytes unread would be a reset.
func readOnce(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

// readAndReset makes the close send a RST.
func readAndReset(conn net.Conn) {
	readOnce(conn)
	_ = conn.(*net.TCPConn).SetLinger(0)
}

func answerGarbage(conn net.Conn) {
	readOnce(conn)
	_, _ = conn.Write([]byte("no http\r\n\r\n"))
}
