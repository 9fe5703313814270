package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/internal/pools"
)

func TestConnect(t *testing.T) {
	t.Parallel()

	t.Run("ABrokerThatIsNotThereIsToldAtOnce", func(t *testing.T) {
		t.Parallel()
		r := newCLI(t, "KAFKA_BROKERS=127.0.0.1:1").run("dlq", "ls", "--topic", "orders.dlq")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "no broker of 127.0.0.1:1 answers")
		require.Contains(t, r.err, "fix: check --brokers")
	})

	t.Run("ATopicThatDoesNotExistIsNamed", func(t *testing.T) {
		t.Parallel()
		for _, command := range []string{"ls", "show", "replay"} {
			r := newBed(t).run("dlq", command, "--topic", "nowhere.dlq", "--at", "orders/1/1")
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, `topic "nowhere.dlq" does not exist`)
			require.Contains(t, r.err, "fix: check --topic")
		}
	})

	t.Run("AMissingPermissionIsNamed", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t, kfake.SeedTopics(1, "orders.dlq"))
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders.dlq", Err: kerr.TopicAuthorizationFailed, Count: -1})
		r := newCLI(t).run("dlq", "ls", "--topic", "orders.dlq", "--brokers", fake.ListenAddrs()[0])
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "TOPIC_AUTHORIZATION_FAILED")
		require.Contains(t, r.err, "fix: let the user Describe and Read orders.dlq")
	})

	t.Run("TheKafkaClientIsHeardOnRequestOnly", func(t *testing.T) {
		t.Parallel()
		for _, verbose := range []bool{false, true} {
			r := newCLI(t).run("dlq", "ls", "--topic", "orders.dlq", "--brokers", "127.0.0.1:1", "--verbose="+strconv.FormatBool(verbose))
			require.Equal(t, verbose, strings.Contains(r.err, "kafka client: unable to open connection"), r.err)
		}
	})

	t.Run("LogsInWithThePasswordOfTheEnvironmentOrOfAFile", func(t *testing.T) {
		t.Parallel()
		for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
			names := map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}
			fake := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser(names[mechanism], "me", "hunter2"), kfake.SeedTopics(1, "orders.dlq"))
			args := []string{"dlq", "ls", "--topic", "orders.dlq", "--brokers", fake.ListenAddrs()[0], "--sasl-mechanism", mechanism, "--sasl-user", "me"}

			newCLI(t, envPassword+"=hunter2").ok(args...)
			file := filepath.Join(t.TempDir(), "password")
			require.NoError(t, os.WriteFile(file, []byte("hunter2\n"), 0o600))
			newCLI(t).ok(append(args, "--sasl-password-file", file)...)

			r := newCLI(t, envPassword+"=hunter3").run(args...)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, "--sasl-user, the password and --sasl-mechanism")
			require.NotContains(t, r.out+r.err, "hunter")
		}
	})

	t.Run("TheEnvironmentAloneLogsIn", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "me", "hunter2"), kfake.SeedTopics(1, "orders.dlq"))
		env := []string{
			"KAFKA_BROKERS=" + fake.ListenAddrs()[0], "KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT", "KAFKA_SASL_MECHANISM=SCRAM-SHA-512",
			"KAFKA_SASL_USERNAME=me", "KAFKA_SASL_PASSWORD=hunter2",
		}
		newCLI(t, env...).ok("dlq", "ls", "--topic", "orders.dlq")
		r := newCLI(t, append(env, "HEADRACE_SASL_MECHANISM=GSSAPI")...).run("dlq", "ls", "--topic", "orders.dlq")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, `mechanism "GSSAPI" is not known`)
		require.NotContains(t, r.out+r.err, "hunter")
	})

	t.Run("ACAFileThatIsNotThereIsNamed", func(t *testing.T) {
		t.Parallel()
		r := newCLI(t, "KAFKA_SSL_CA_LOCATION=/nowhere/ca.pem").run("dlq", "ls", "--topic", "orders.dlq", "--brokers", "127.0.0.1:1")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "open /nowhere/ca.pem: no such file")
		require.Contains(t, r.err, "fix: name a file that this user can read")
	})

	t.Run("TLSToAPortWithoutItIsTold", func(t *testing.T) {
		t.Parallel()
		r := newCLI(t).run("dlq", "ls", "--topic", "orders.dlq", "--tls", "--brokers", talksPlain(t))
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "fix: the brokers do not speak TLS at this port")
	})
}

// talksPlain is the address of a server that answers whatever comes in plain text.
func talksPlain(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("what do you want?"))
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestDatabase_ThatIsAwayIsNotOneThatRefusesALogin(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.buryMany(1)
	r := b.run("dlq", "ls", "--topic", "orders.dlq", "--dsn", "postgres://me@127.0.0.1:1/db")
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "headrace: the database at 127.0.0.1:1 cannot be reached: connection refused\n"+
		"  fix: see that it is up, and check host and port of --dsn or DATABASE_URL\n", r.err)

	u, err := url.Parse(pgtest.DSN(t))
	require.NoError(t, err)
	u.Path = "/nowhere"
	r = b.run("dlq", "ls", "--topic", "orders.dlq", "--dsn", u.String())
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "headrace: the database at "+u.Host+` does not let us in: database "nowhere" does not exist (3D000)`+"\n"+
		"  fix: check the database's name in --dsn or DATABASE_URL\n", r.err)
}

// Somebody presses ^C while the server hangs: pgx alone would give it 15 s to read a cancel request.
func TestDatabase_ThatHangsDoesNotKeepTheCommandFromEnding(t *testing.T) {
	t.Parallel()
	proxy := pgtest.NewProxy(t, pgtest.DSN(t))
	asked := proxy.Once(pgtest.SQL("-- ping"), pgtest.SwallowReply)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan result, 1)
	go func() { ended <- newCLI(t, envDSN+"="+proxy.DSN()).runUntil(ctx, "outbox", "status") }()
	<-asked
	proxy.Pause()
	began := time.Now()
	cancel()
	require.Equal(t, exitFailed, (<-ended).code)
	require.Less(t, time.Since(began), 5*pools.Grace)
}
