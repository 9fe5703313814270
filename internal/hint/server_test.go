package hint_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve is the address of a server that does this to each connection, and then keeps it until the client closes it, lest the
// client's next write fails before it has read what was said.
func serve(t *testing.T, each func(net.Conn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	over := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-over
	})
	go func() {
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			each(conn)
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// secured speaks TLS, and hangs up when a handshake has succeeded.
func secured(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		if server := tls.Server(conn, cfg); server.HandshakeContext(context.Background()) == nil {
			_ = server.Close()
		}
	})
}

// saying answers the first bytes with these.
func saying(t *testing.T, answer string) string {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		hear(conn)
		_, _ = conn.Write([]byte(answer))
	})
}

// hanging ends each connection after the first bytes.
func hanging(t *testing.T) string {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		hear(conn)
		_ = conn.Close()
	})
}

// resetting does the same by a reset, as a server does that has not read everything.
func resetting(t *testing.T) string {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		hear(conn)
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	})
}

func hear(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

// house is an authority and what it has signed.
type house struct {
	pool *x509.CertPool
	own  tls.Certificate
}

func newHouse(t *testing.T) house {
	t.Helper()
	a, err := kafkatest.NewAuthority()
	require.NoError(t, err)
	cert, key, err := a.Sign("somebody")
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(a.PEM))
	return house{pool, pair}
}

// server is the configuration of a server of the house; changes are made to it.
func (h house) server(changes ...func(*tls.Config)) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{h.own}}
	for _, change := range changes {
		change(cfg)
	}
	return cfg
}

// mutual is one that wants certificates of the house.
func (h house) mutual(changes ...func(*tls.Config)) *tls.Config {
	return h.server(append([]func(*tls.Config){func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, h.pool
	}}, changes...)...)
}

// client is one that trusts the house.
func (h house) client(changes ...func(*tls.Config)) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: h.pool}
	for _, change := range changes {
		change(cfg)
	}
	return cfg
}

// showing has a client show this certificate, whatever it is asked for.
func showing(pair tls.Certificate) func(*tls.Config) {
	return func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
}

func inTwoDays(c *tls.Config) { c.Time = func() time.Time { return time.Now().Add(48 * time.Hour) } }

// nowhere dials a name that nobody knows, whatever it is told.
func nowhere(name string) func(context.Context, string, string) (net.Conn, error) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Resolver: resolver}).DialContext(ctx, network, net.JoinHostPort(name, "9092"))
	}
}

// fake is a cluster with logins.
func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	return kafkatest.Fake(t, append(opts, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "me", "hunter2"))...)
}

// failure is why a client of this configuration reaches nobody.
func failure(ctx context.Context, t *testing.T, cfg kafka.ClientConfig) error {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	admin, err := kafka.NewAdmin(cfg)
	require.NoError(t, err)
	defer admin.Close()
	err = admin.Ping(ctx)
	require.Error(t, err)
	return err
}
