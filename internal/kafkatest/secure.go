package kafkatest

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/internal/backoff"
)

// Secure is a cluster with logins, TLS and ACLs. Its Brokers are the plain listener: whoever comes by it, as the helpers of
// this package do, may do everything. Others may do what [Allow] gave them.
//
// PLAIN knows the users app and other, with the passwords app-secret and other-secret; AddSCRAM makes those of SCRAM;
// OAUTHBEARER takes what Token makes.
type Secure struct {
	*Cluster

	// Authority has signed the brokers' certificates, and can sign clients'. Their common name is the user's.
	Authority *Authority
}

const (
	saslPort = 2 // above the node's own
	sslPort  = 3
)

var sharedSecure = sync.OnceValues(func() (*Secure, error) {
	s, _, err := LaunchSecure(1)
	return s, err
})

// RealSecure returns the secure cluster that the tests of this package share: one node. Users, topics and groups are the
// test's to keep apart; those of PLAIN are few, so whoever gives permissions takes one of SCRAM.
func RealSecure(t testing.TB) *Secure {
	t.Helper()
	need(t)
	s, err := sharedSecure()
	require.NoError(t, err)
	return s
}

// LaunchSecure is [Launch] for a cluster with ACLs.
func LaunchSecure(nodes int) (s *Secure, stop func() error, err error) {
	a, err := NewAuthority()
	if err != nil {
		return nil, nil, err
	}
	cert, key, err := a.Sign("broker")
	if err != nil {
		return nil, nil, err
	}
	own := []string{"KAFKA_CA=" + string(a.PEM), "KAFKA_CERT=" + string(key) + string(cert) + string(a.PEM)}
	c, err := launch(nodes, func(*Cluster) []string { return own })
	if err != nil {
		return nil, nil, err
	}
	return &Secure{Cluster: c, Authority: a}, c.stop, nil
}

// SASL are the addresses for logins by a mechanism, under TLS.
func (s *Secure) SASL() []string { return s.above(saslPort) }

// SSL are the addresses for logins by a client certificate.
func (s *Secure) SSL() []string { return s.above(sslPort) }

func (s *Secure) above(n int) []string {
	list := make([]string, len(s.brokers))
	for i := range list {
		list[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port+i*portStep+n))
	}
	return list
}

// AddSCRAM makes a user of SCRAM-SHA-512, and returns when every broker knows it.
func (s *Secure) AddSCRAM(t testing.TB, user, password string) {
	t.Helper()
	ctx, cancel := deadline(t)
	defer cancel()
	done, err := Admin(t, s.brokers).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{
		User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password,
	}})
	require.NoError(t, err)
	require.NoError(t, done.Error())
	for i := range s.brokers { // they learn of it one by one
		admin := kadm.NewClient(Client(t, s.brokers[i:i+1]))
		for {
			known, err := admin.DescribeUserSCRAMs(ctx, user)
			if err == nil && known.Error() == nil && len(known) == 1 {
				break
			}
			require.True(t, backoff.Wait(ctx, pollEvery), "a broker does not learn of %s: %v", user, err)
		}
	}
}

// Token is an unsigned token of OAUTHBEARER for this user.
func Token(user string, until time.Time) string {
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return encode(`{"alg":"none"}`) + "." +
		encode(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, user, time.Now().Unix(), until.Unix())) + "."
}
