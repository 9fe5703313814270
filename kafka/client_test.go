package kafka_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/headrace/headrace/kafka"
)

func TestClientConfig(t *testing.T) {
	t.Parallel()
	t.Run("TLSAndSASLAreForEveryConnection", func(t *testing.T) {
		t.Parallel()
		server, roots := certificate(t)
		_, client := cluster(t, kfake.SeedTopics(1, "t"), kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "me", "secret"))
		client.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
		client.SASL = scram.Auth{User: "me", Pass: "secret"}.AsSha512Mechanism()
		var dials atomic.Int32
		client.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		require.NoError(t, publisher(t, kafka.PublisherConfig{Client: client}).Publish("t", message.NewMessage("1", nil)))
		got, err := admin(t, client).Topic(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, 1, got.Partitions)
		require.GreaterOrEqual(t, dials.Load(), int32(2))
	})

	t.Run("AnUnknownAuthorityIsRefused", func(t *testing.T) {
		t.Parallel()
		server, _ := certificate(t)
		_, client := cluster(t, kfake.TLS(server))
		client.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
		cl, err := kgo.NewClient(append(client.Options(), kgo.RequestRetries(0))...)
		require.NoError(t, err)
		defer cl.Close()
		var unknown x509.UnknownAuthorityError
		require.ErrorAs(t, cl.Ping(t.Context()), &unknown)
	})

	t.Run("TheClientsWarningsReachTheLog", func(t *testing.T) {
		t.Parallel()
		for level, wanted := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
			var out bytes.Buffer
			cfg := kafka.ClientConfig{
				Brokers: []string{"a:1"},
				Logger:  slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})),
			}
			cl, err := kgo.NewClient(cfg.Options()...)
			require.NoError(t, err)
			logger := cl.OptValue(kgo.WithLogger).(kgo.Logger)
			logger.Log(kgo.LogLevelWarn, "a warning", "k", "v")
			logger.Log(kgo.LogLevelInfo, "a remark")
			cl.Close()
			require.Contains(t, out.String(), `level=WARN msg="kafka client: a warning" k=v`)
			require.Equal(t, wanted, bytes.Contains(out.Bytes(), []byte("a remark")))
			require.Equal(t, wanted, logger.Level() == kgo.LogLevelInfo)
		}
	})

	t.Run("NoBrokersAreRefused", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, kafka.ClientConfig{}.Validate(), kafka.ErrNoBrokers)
	})
}

// certificate is a server's, for 127.0.0.1, and the pool that trusts it.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13}, roots
}
