package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

// guarded is a world on a broker with ACLs: the auditor may do everything, its members only what they are given.
type guarded struct {
	*world
	secure *kafkatest.Secure
	user   string
}

// guardedWorld has the topics that a consumer without the right to create any finds.
func guardedWorld(t *testing.T, user string) *guarded {
	t.Helper()
	s := kafkatest.RealSecure(t)
	g := &guarded{world: newWorld(t, s.Brokers(), 1), secure: s, user: user}
	for _, topic := range []string{g.deadLetters, g.replayTopic()} {
		kafkatest.CreateTopic(t, g.brokers, topic, 1, "max.message.bytes", "2000000", "retention.ms", "604800000")
		g.eventually("the broker knows "+topic, func() bool { return g.exists(topic) })
	}
	return g
}

// least are the permissions of docs/security.md: what a consumer needs, and no more.
func (g *guarded) least() []kafkatest.ACL {
	return []kafkatest.ACL{
		kafkatest.TopicACL(g.topic, kmsg.ACLOperationRead),
		kafkatest.TopicACL(g.topic, kmsg.ACLOperationDescribeConfigs),
		kafkatest.TopicACL(g.deadLetters, kmsg.ACLOperationWrite),
		kafkatest.TopicACL(g.deadLetters, kmsg.ACLOperationDescribeConfigs),
		kafkatest.TopicACL(g.replayTopic(), kmsg.ACLOperationRead),
		kafkatest.TopicACL(g.replayTopic(), kmsg.ACLOperationDescribeConfigs),
		kafkatest.GroupACL(g.group, kmsg.ACLOperationRead),
	}
}

// documented are the rows of the table in docs/security.md, for the world's names.
func (g *guarded) documented() (rows []string) {
	g.t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(g.t, err)
	names := strings.NewReplacer("orders", g.topic, "<group>", g.group)
	for _, found := range regexp.MustCompile("(?m)^\\| (\\w+) \\| (topic|group) `(.*)` \\|").FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, strings.ToUpper(found[1]+" "+found[2])+" "+names.Replace(found[3]))
	}
	return rows
}

// as is a setup whose member logs in so.
func (g *guarded) as(brokers []string, s kafka.Security) setup {
	g.t.Helper()
	encrypted, mechanism, err := s.Resolve()
	require.NoError(g.t, err)
	made := g.setup()
	made.Tune = func(c *consumer.Config) {
		c.Brokers, c.TLS, c.SASL = brokers, encrypted, mechanism
		c.CreateDeadLetterTopics = false
	}
	return made
}

// scrammed is a setup of the world's own user.
func (g *guarded) scrammed() setup {
	g.t.Helper()
	g.secure.AddSCRAM(g.t, g.user, "scram-secret")
	return g.as(g.secure.SASL(), kafka.Security{
		TLS: true, CAFile: g.file("ca.pem", g.secure.Authority.PEM),
		Mechanism: kafka.SCRAMSHA512, User: g.user, Password: "scram-secret",
	})
}

func (g *guarded) file(name string, data []byte) string {
	g.t.Helper()
	path := filepath.Join(g.t.TempDir(), name)
	require.NoError(g.t, os.WriteFile(path, data, 0o600))
	return path
}

// logins are each way to log in, and how the broker calls who does.
var logins = map[string]func(g *guarded) setup{
	"PLAIN": func(g *guarded) setup {
		g.user = "app"
		return g.as(g.secure.SASL(), kafka.Security{
			TLS: true, CAFile: g.file("ca.pem", g.secure.Authority.PEM),
			Mechanism: kafka.Plain, User: "app", PasswordFile: g.file("password", []byte("app-secret\n")),
		})
	},
	"SCRAM-SHA-512": (*guarded).scrammed,
	"OAUTHBEARER": func(g *guarded) setup {
		return g.as(g.secure.SASL(), kafka.Security{
			TLS: true, CAFile: g.file("ca.pem", g.secure.Authority.PEM), Mechanism: kafka.OAuthBearer,
			Token: func(context.Context) (string, error) { return kafkatest.Token(g.user, time.Now().Add(time.Hour)), nil },
		})
	},
	"Certificate": func(g *guarded) setup {
		cert, key, err := g.secure.Authority.Sign(g.user)
		require.NoError(g.t, err)
		return g.as(g.secure.SSL(), kafka.Security{
			TLS: true, CAFile: g.file("ca.pem", g.secure.Authority.PEM),
			CertFile: g.file("cert.pem", cert), KeyFile: g.file("key.pem", key),
		})
	},
}

// Consumer, publisher of dead letters and admin log in by the same configuration, and the least permissions suffice.
func TestSecure_EveryLoginGivesEachRecordItsOutcomeWithTheLeastPermissions(t *testing.T) {
	t.Parallel()
	for name, login := range logins {
		for transport, tune := range map[string]func(*consumer.Config){
			"Source":         func(*consumer.Config) {},
			"WatermillKafka": func(c *consumer.Config) { c.Transport = stock.Transport() },
		} {
			t.Run(name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				g := guardedWorld(t, kafkatest.Name(t))
				s := login(g)
				g.secure.Allow(t, g.user, g.least()...)
				g.produce(append(g.orders(30, 10, order{}), g.orders(3, 3, order{Do: "fail"})...)...)
				in := s.Tune
				s.Tune = func(c *consumer.Config) { in(c); tune(c) }
				m := g.start(s)
				g.drained()
				m.quit()
				require.Equal(t, tally{Records: 33, Effected: 30, Dead: 3}, g.one())
				require.Zero(t, m.logs.lines("secret"), "no password in the log")
			})
		}
	}
}

// heard are the reports of a member.
type heard struct {
	mu    sync.Mutex
	texts map[string]string // by kind
}

func (h *heard) hooks() *record.Hooks {
	return &record.Hooks{OnReport: func(r record.Report) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.texts == nil {
			h.texts = map[string]string{}
		}
		h.texts[r.Kind] += fmt.Sprintf("%s %v %s\n", r.Topic, r.Err, r.Hint)
	}}
}

func (h *heard) of(kind string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.texts[kind]
}

// Without one of them a member does not start, and says what is missing.
func TestSecure_WithoutOneOfTheLeastPermissionsItIsSaidWhichIsMissing(t *testing.T) {
	t.Parallel()
	g := guardedWorld(t, kafkatest.Name(t))
	s := g.scrammed()
	g.secure.Allow(t, g.user, g.least()...)
	g.produce(g.record("", order{Do: "fail"}))
	var least []string
	for _, acl := range g.least() {
		least = append(least, strings.ReplaceAll(acl.String(), "_CONFIGS", "CONFIGS"))
	}
	require.ElementsMatch(t, g.documented(), least)
	for i, missing := range g.least() {
		want := missing.Name // of the topic or the group
		g.secure.Revoke(t, g.user, missing)
		var h heard
		m := g.run(s, h.hooks(), s.scripted()...)
		var said string
		g.eventually("it is said that "+missing.String()+" is missing", func() bool {
			said = h.of(record.ReportGroupError) + h.of(record.ReportPartitionError) + h.of(record.ReportDeadLetterNotWritten)
			if closed(m.gone) {
				said += fmt.Sprint(m.err)
			}
			return said != ""
		})
		t.Logf("%d without %s: %s", i, missing, said)
		require.Contains(t, said, want)
		require.Regexp(t, `AUTHORIZATION_FAILED|allow|permission`, said)
		_ = m.end()
		g.secure.Allow(t, g.user, missing)
	}
	m := g.start(s)
	g.drained()
	m.quit()
	require.Equal(t, tally{Records: 1, Dead: 1}, g.one())
}

// A permission that is taken away while the member runs is a hold like any other: it is reported, nothing dies of it, and
// all goes on once it is given again.
func TestSecure_PermissionsThatAreTakenAwayHoldTheirPartAndHealWhenTheyReturn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		taken func(g *guarded) kafkatest.ACL
		kind  string
	}{
		"ReadTheGroup":        {func(g *guarded) kafkatest.ACL { return kafkatest.GroupACL(g.group, kmsg.ACLOperationRead) }, record.ReportGroupError},
		"ReadTheTopic":        {func(g *guarded) kafkatest.ACL { return kafkatest.TopicACL(g.topic, kmsg.ACLOperationRead) }, record.ReportPartitionError},
		"WriteTheDeadLetters": {func(g *guarded) kafkatest.ACL { return kafkatest.TopicACL(g.deadLetters, kmsg.ACLOperationWrite) }, record.ReportDeadLetterNotWritten},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guardedWorld(t, kafkatest.Name(t))
			s := g.scrammed()
			g.secure.Allow(t, g.user, g.least()...)
			g.produce(append(g.orders(100, 10, order{}), g.orders(2, 2, order{Do: "fail"})...)...)
			var h heard
			m := g.run(s, h.hooks(), s.scripted()...)
			g.past(50)
			taken := c.taken(g)
			g.secure.Revoke(t, g.user, taken)
			g.produce(append(g.orders(2, 2, order{Do: "fail"}), g.orders(100, 10, order{})...)...)
			g.eventually("it is reported", func() bool { return h.of(c.kind) != "" })
			require.Contains(t, h.of(c.kind), "AUTHORIZATION_FAILED")
			g.eventually("readiness says why", func() bool { return m.ready() != nil })
			g.secure.Allow(t, g.user, taken)
			g.drained()
			g.eventually("it is ready again", func() bool { return m.ready() == nil })
			m.quit()
			require.Equal(t, tally{Records: 204, Effected: 200, Dead: 4}, g.one())
		})
	}
}
