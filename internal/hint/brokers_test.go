package hint_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/headrace/headrace/internal/hint"
	"github.com/headrace/headrace/kafka"
)

var words = hint.Words{
	Brokers: "<brokers>", AddTLS: "<add TLS>", DropTLS: "<drop TLS>", CA: "<believe>", Certificate: "<certificate>",
	AddLogin: "<add login>", DropLogin: "<drop login>", Login: "<login>", Mechanism: "<mechanism>",
}

// reach is what a client is told that is configured so.
func reach(t *testing.T, address string, change func(*kafka.ClientConfig)) string {
	t.Helper()
	cfg := kafka.ClientConfig{Brokers: []string{address}}
	if change != nil {
		change(&cfg)
	}
	err := failure(t.Context(), t, cfg)
	t.Log(err)
	return hint.Brokers(cfg, err, words)
}

func with(security *tls.Config) func(*kafka.ClientConfig) {
	return func(c *kafka.ClientConfig) { c.TLS = security }
}

func loggingIn(password string) func(*kafka.ClientConfig) {
	return func(c *kafka.ClientConfig) { c.SASL = scram.Auth{User: "me", Pass: password}.AsSha512Mechanism() }
}

// Each is told by a client that really failed so: that the client's words, by which some are known, are still the same is
// part of it.
func TestBrokers_ACertificateThatIsRefused(t *testing.T) {
	t.Parallel()
	h, other := newHouse(t), newHouse(t)
	for _, c := range []struct {
		name   string
		server *tls.Config
		client *tls.Config
		want   string
	}{
		{"TheBrokersIsOfAnotherAuthority", h.server(), other.client(), "of an authority that is not trusted here: <believe>"},
		{"TheBrokersIsOfAnotherName", h.server(), h.client(func(c *tls.Config) { c.ServerName = "kafka-1" }), "is not for the host kafka-1: call them in <brokers> by"},
		{"TheBrokersHasExpired", h.server(), h.client(inTwoDays), "certificate is not valid at this time"},
		{"OursIsWanted", h.mutual(), h.client(), "the brokers want a client certificate: give it by <certificate>"},
		{"OursIsWantedByTLS12", h.mutual(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), h.client(), "the brokers want a client certificate, or have no version"},
		{"OursIsKeptBack", h.mutual(), h.client(showing(tls.Certificate{})), "a certificate of an authority that they name, and this client's is of another"},
		{"OursIsOfAnotherAuthority", h.mutual(), h.client(showing(other.own)), "do not trust the authority of this client's certificate: give one of theirs by <certificate>"},
		{"OursHasExpired", h.mutual(inTwoDays), h.client(showing(h.own)), "certificate is not valid any more: renew that of <certificate>"},
		{"OursIsRefused", h.mutual(func(c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { return errors.New("not this one") }
		}), h.client(showing(h.own)), "the brokers refuse this client's certificate: see their log, and check <certificate>"},
		{"OursCannotBeRead", h.mutual(), h.client(func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return nil, &kafka.SecurityError{What: "the certificate", Fix: "give files"}
			}
		}), "give files"},
		{"NoVersionInCommon", h.server(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), h.client(func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }), "no version or cipher of TLS in common"},
		{"NobodyOfThatName", &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }}, //nolint:nilnil // that is what has it say so
			h.client(func(c *tls.Config) { c.ServerName = "kafka-1" }), "do not know the host by which they are called: check <brokers>"},
		{
			"AnyOtherAlert", &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errors.New("broken") }},
			h.client(), "the brokers ended the TLS handshake: see their log",
		},
		{"NoneIsThere", h.server(), h.client(), "check <brokers>; if the brokers want a client certificate, give it by <certificate>; if a login, <add login>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, reach(t, secured(t, c.server), with(c.client)), c.want)
		})
	}
}

func TestBrokers_AnotherProtocol(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const alert = "\x15\x03\x03\x00\x02\x02\x46" // "protocol version", as OpenSSL tells who does not speak TLS
	for _, c := range []struct {
		name    string
		address string
		client  func(*kafka.ClientConfig)
		want    string
	}{
		{"TLSToWhoAnswersInPlain", saying(t, "what do you want?"), with(h.client()), "the brokers do not speak TLS at this port: <drop TLS>, or name their TLS port"},
		{"TLSToWhoHangsUp", hanging(t), with(h.client()), "the brokers do not speak TLS at this port: <drop TLS>"},
		{"TLSToWhoResets", resetting(t), with(h.client()), "the brokers do not speak TLS at this port: <drop TLS>"},
		{"PlainToWhoAnswersWithAnAlert", saying(t, alert), nil, "the brokers speak TLS at this port: <add TLS>"},
		{"PlainToWhoHangsUp", hanging(t), nil, "check <brokers>; if the brokers want TLS, <add TLS>"},
		{"PlainToWhoResets", resetting(t), nil, "check <brokers>; if the brokers want TLS, <add TLS>"},
		{"ALoginToWhoHangsUp", hanging(t), loggingIn("hunter2"), "check <brokers>, <login>; if the brokers want TLS, <add TLS>"},
		{"ALoginUnderTLSToWhoHangsUp", secured(t, h.server()), func(c *kafka.ClientConfig) {
			loggingIn("hunter2")(c)
			c.TLS = h.client()
		}, "check <brokers>, <login>"},
		{"AWebServer", saying(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), nil, "a web server answers there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, reach(t, c.address, c.client), c.want)
		})
	}
}

func TestBrokers_ALogin(t *testing.T) {
	t.Parallel()
	open, shut, strict := fake(t), fake(t), fake(t)
	shut.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLHandshake}, Err: kerr.IllegalSaslState, Count: -1})
	strict.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, Err: kerr.SaslAuthenticationFailed, Count: -1})
	for _, c := range []struct {
		name   string
		at     *kfake.Cluster
		client func(*kafka.ClientConfig)
		want   string
	}{
		{"IsRefused", strict, loggingIn("hunter2"), "check <login>"},
		{"IsRefusedWithoutAWord", open, loggingIn("hunter3"), "check <brokers>, <login>"},
		{"IsByAnotherMechanism", open, func(c *kafka.ClientConfig) { c.SASL = oauth.Auth{Token: "token"}.AsMechanism() }, "check <mechanism>"},
		{"IsWanted", open, nil, "the brokers want a login at this port: <add login>"},
		{"IsNotWanted", shut, loggingIn("hunter2"), "the brokers want no login at this port: <drop login>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, reach(t, c.at.ListenAddrs()[0], c.client), c.want)
		})
	}
}

func TestBrokers_AnAddress(t *testing.T) {
	t.Parallel()
	dialing := func(name string) func(*kafka.ClientConfig) {
		return func(c *kafka.ClientConfig) { c.Dial = nowhere(name) }
	}
	for _, c := range []struct {
		name   string
		client func(*kafka.ClientConfig)
		want   string
	}{
		{"WhereNobodyListens", nil, "check <brokers>: nobody listens at that port"},
		{"ThatNobodyKnows", dialing("Here.invalid"), "check the host in <brokers>: nobody knows that name"},
		{"ThatTheBrokersTellAndNobodyKnows", dialing("inside.invalid"), "the brokers tell clients to go to inside.invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address := "here.invalid:9092"
			if c.client == nil {
				address = free(t)
			}
			require.Contains(t, reach(t, address, c.client), c.want)
		})
	}
	t.Run("WhereNobodyAnswers", func(t *testing.T) {
		t.Parallel()
		silent, cancel := context.WithCancel(t.Context())
		cancel()
		cfg := kafka.ClientConfig{Brokers: []string{"127.0.0.1:1"}}
		require.Contains(t, hint.Brokers(cfg, failure(silent, t, cfg), words), "check <brokers> and what lies between")
	})
}

// free is an address where nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
