package kafkatest_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/headrace/headrace/internal/kafkatest"
)

func TestSecure_LetsInWhomItKnowsAndLetsThemDoWhatTheyMay(t *testing.T) {
	t.Parallel()
	s := kafkatest.RealSecure(t)
	topic := kafkatest.Topic(t, s.Brokers(), 1)
	s.AddSCRAM(t, "scrammed", "scram-secret")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(s.Authority.PEM))
	cert, key, err := s.Authority.Sign("certified")
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	mutual := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}

	for user, opts := range map[string][]kgo.Opt{
		"app":       {kgo.SeedBrokers(s.SASL()...), kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), kgo.SASL(plain.Auth{User: "app", Pass: "app-secret"}.AsMechanism())},
		"scrammed":  {kgo.SeedBrokers(s.SASL()...), kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), kgo.SASL(scram.Auth{User: "scrammed", Pass: "scram-secret"}.AsSha512Mechanism())},
		"tokened":   {kgo.SeedBrokers(s.SASL()...), kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), kgo.SASL(oauth.Auth{Token: kafkatest.Token("tokened", time.Now().Add(time.Hour))}.AsMechanism())},
		"certified": {kgo.SeedBrokers(s.SSL()...), kgo.DialTLSConfig(mutual)},
	} {
		client := kafkatest.Client(t, nil, opts...)
		may := func() error {
			return client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(user)}).FirstErr()
		}
		write := kafkatest.TopicACL(topic, kmsg.ACLOperationWrite)
		require.ErrorIs(t, may(), kerr.TopicAuthorizationFailed, user)
		s.Allow(t, user, write)
		require.NoError(t, may(), user)
		s.Revoke(t, user, write)
		require.ErrorIs(t, may(), kerr.TopicAuthorizationFailed, user)
	}
	require.Len(t, kafkatest.ReadAll(t, s.Brokers(), topic), 4)
}
