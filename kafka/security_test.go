package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
)

func written(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func TestSecurity_WhatIsWrongIsNamedAndNoSecretIs(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2"
	a, err := kafkatest.NewAuthority()
	require.NoError(t, err)
	cert, key, err := a.Sign("me")
	require.NoError(t, err)
	_, otherKey, err := a.Sign("you")
	require.NoError(t, err)
	certFile, keyFile, otherFile := written(t, "cert.pem", cert), written(t, "key.pem", key), written(t, "other.pem", otherKey)
	password, empty := written(t, "password", []byte(secret)), written(t, "empty", []byte("\n"))

	for want, s := range map[string]kafka.Security{
		`mechanism "GSSAPI" is not known`:                     {Mechanism: "GSSAPI", User: "me", Password: secret},
		"mechanism PLAIN without a user":                      {Mechanism: "plain", Password: secret},
		"mechanism SCRAM-SHA-512 without a password":          {Mechanism: "SCRAM-SHA-512", User: "me"},
		"mechanism OAUTHBEARER without a password or token":   {Mechanism: "OAUTHBEARER"},
		"mechanism OAUTHBEARER with a user":                   {Mechanism: "OAUTHBEARER", User: "me", Password: secret},
		"a user, a password or a token, and no mechanism":     {Password: secret},
		"a password or token is given twice":                  {Mechanism: "PLAIN", User: "me", Password: secret, PasswordFile: password},
		"a token is for OAUTHBEARER, not for PLAIN":           {Mechanism: "PLAIN", User: "me", Token: func(context.Context) (string, error) { return secret, nil }},
		"the password file " + empty + " is empty":            {Mechanism: "PLAIN", User: "me", PasswordFile: empty},
		"the password file: open /nowhere: no such file":      {Mechanism: "PLAIN", User: "me", PasswordFile: "/nowhere"},
		"certificate files without TLS":                       {CAFile: certFile},
		"the file of certificates to believe: open /nowhere":  {TLS: true, CAFile: "/nowhere"},
		"the file " + password + " has no certificate":        {TLS: true, CAFile: password},
		"a client certificate without its key":                {TLS: true, CertFile: certFile},
		"the client certificate " + certFile + " or its key":  {TLS: true, CertFile: certFile, KeyFile: otherFile},
		"the client certificate " + keyFile + " or its key":   {TLS: true, CertFile: keyFile, KeyFile: keyFile},
		"the client certificate " + password + " or its key ": {TLS: true, CertFile: password, KeyFile: password},
	} {
		_, _, err := s.Resolve()
		require.ErrorContains(t, err, want)
		var bad *kafka.SecurityError
		require.ErrorAs(t, err, &bad)
		require.NotEmpty(t, bad.Hint())
		for _, text := range []string{err.Error(), bad.Hint(), fmt.Sprint(s), fmt.Sprintf("%+v", s), fmt.Sprintf("%#v", s)} {
			require.NotContains(t, text, secret)
			require.NotContains(t, text, "PRIVATE KEY")
		}
	}
}

func TestSecurity_APasswordFileIsReadAtEveryLogin(t *testing.T) {
	t.Parallel()
	file := written(t, "password", []byte("first\r\n"))
	_, m, err := kafka.Security{Mechanism: "Plain", User: "me", PasswordFile: file}.Resolve()
	require.NoError(t, err)
	require.Equal(t, "PLAIN", m.Name())
	for _, password := range []string{"first", "second"} {
		_, sent, err := m.Authenticate(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "\x00me\x00"+password, string(sent))
		require.NoError(t, os.WriteFile(file, []byte("second"), 0o600))
	}
	require.NoError(t, os.Remove(file))
	_, _, err = m.Authenticate(t.Context(), "")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestSecurity_ACertificateThatIsRenewedIsShownToTheNextConnection renews the files as others do: one after the other.
func TestSecurity_ACertificateThatIsRenewedIsShownToTheNextConnection(t *testing.T) {
	t.Parallel()
	a, err := kafkatest.NewAuthority()
	require.NoError(t, err)
	firstCert, firstKey, err := a.Sign("first")
	require.NoError(t, err)
	secondCert, secondKey, err := a.Sign("second")
	require.NoError(t, err)
	certFile, keyFile := written(t, "cert.pem", firstCert), written(t, "key.pem", firstKey)
	cfg, _, err := kafka.Security{
		TLS: true, CAFile: written(t, "ca.pem", a.PEM), CertFile: certFile, KeyFile: keyFile, ServerName: "localhost",
	}.Resolve()
	require.NoError(t, err)

	require.Equal(t, "first", shown(t, a, cfg))
	require.NoError(t, os.WriteFile(certFile, secondCert, 0o600))
	require.Equal(t, "first", shown(t, a, cfg), "the new certificate has no key yet")
	require.NoError(t, os.WriteFile(keyFile, secondKey, 0o600))
	require.Equal(t, "second", shown(t, a, cfg.Clone()), "a clone is what kafka/stock has")
	require.NoError(t, os.Remove(keyFile))
	require.Equal(t, "second", shown(t, a, cfg))
}

// shown is the common name of the certificate that a client shows a server of this authority.
func shown(t *testing.T, a *kafkatest.Authority, client *tls.Config) string {
	t.Helper()
	cert, key, err := a.Sign("server")
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	ours, theirs := net.Pipe()
	server := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12})
	done := make(chan error, 1)
	go func() { done <- tls.Client(ours, client).HandshakeContext(t.Context()) }()
	require.NoError(t, server.HandshakeContext(t.Context()))
	require.NoError(t, <-done)
	require.NoError(t, errors.Join(ours.Close(), theirs.Close()))
	return server.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestSecurity_ATokenThatCannotBeHadIsToldWithoutIt(t *testing.T) {
	t.Parallel()
	_, m, err := kafka.Security{Mechanism: kafka.OAuthBearer, Token: func(context.Context) (string, error) {
		return "", errors.New("token=abcdefgh is over")
	}}.Resolve()
	require.NoError(t, err)
	_, _, err = m.Authenticate(t.Context(), "")
	require.EqualError(t, err, "no token for OAUTHBEARER: token=*** is over")
}

func TestSecurityFromEnv(t *testing.T) {
	t.Parallel()
	of := func(pairs ...string) func(string) string {
		env := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			env[pairs[i]] = pairs[i+1]
		}
		return func(name string) string { return env[name] }
	}
	for want, env := range map[string]func(string) string{
		`tls=false ca="" cert="" mechanism="" user=""`:          of(),
		`tls=true ca="" cert="" mechanism="" user=""`:           of("KAFKA_SECURITY_PROTOCOL", "ssl"),
		`tls=true ca="/ca" cert="" mechanism="" user=""`:        of("KAFKA_SSL_CA_LOCATION", "/ca"),
		`tls=true ca="" cert="/c" mechanism="PLAIN" user="me"`:  of("KAFKA_SECURITY_PROTOCOL", "SASL_SSL", "KAFKA_SSL_CERTIFICATE_LOCATION", "/c", "KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "me"),
		`tls=false ca="" cert="" mechanism="PLAIN" user="ours"`: of("KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT", "KAFKA_SASL_MECHANISM", "PLAIN", "KAFKA_SASL_USERNAME", "me", "HEADRACE_SASL_USERNAME", "ours"),
	} {
		got, err := kafka.SecurityFromEnv(env)
		require.NoError(t, err)
		require.Equal(t, want, got.String())
	}
	got, err := kafka.SecurityFromEnv(of("KAFKA_SASL_PASSWORD", "p", "KAFKA_SASL_PASSWORD_FILE", "f", "KAFKA_SSL_KEY_LOCATION", "k"))
	require.NoError(t, err)
	require.Equal(t, kafka.Security{TLS: true, Password: "p", PasswordFile: "f", KeyFile: "k"}, got)
	for want, env := range map[string]func(string) string{
		`KAFKA_SECURITY_PROTOCOL "TLS" is not known`:                    of("KAFKA_SECURITY_PROTOCOL", "TLS"),
		"KAFKA_SECURITY_PROTOCOL SASL_SSL without KAFKA_SASL_MECHANISM": of("KAFKA_SECURITY_PROTOCOL", "SASL_SSL"),
		"KAFKA_SASL_MECHANISM with KAFKA_SECURITY_PROTOCOL SSL":         of("KAFKA_SECURITY_PROTOCOL", "SSL", "KAFKA_SASL_MECHANISM", "PLAIN"),
	} {
		_, err := kafka.SecurityFromEnv(env)
		require.ErrorContains(t, err, want)
	}
}
