package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
)

// program is one that stands in a page of the documentation, and what it needs around it.
type program struct {
	t      *testing.T
	page   string
	binary string
	kafka  *kfake.Cluster
	broker string
	dsn    string
	pool   *pgxpool.Pool
	log    *lockedBuffer // of the run before the last stop
}

// patient is for what must happen, however busy the machine is.
const patient = time.Minute

// newProgram builds the first program of a page as it stands there, but for the broker's address.
func newProgram(t *testing.T, page, topic string) *program {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	p := &program{t: t, page: string(text), dsn: pgtest.DSN(t)}
	p.pool = pgtest.Pool(t, p.dsn)
	p.kafka = kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, topic))
	p.broker = p.kafka.ListenAddrs()[0]
	_, rest, ok := strings.Cut(p.page, "```go\n")
	require.True(t, ok, "the page shows a program")
	source, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	p.build(strings.ReplaceAll(source, "localhost:9092", p.broker))
	return p
}

// build compiles a program as if it were a package of this module.
func (p *program) build(source string) {
	p.t.Helper()
	dir := p.t.TempDir()
	file := filepath.Join(dir, "main.go")
	require.NoError(p.t, os.WriteFile(file, []byte(source), 0o600))
	root, err := filepath.Abs("..")
	require.NoError(p.t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "page_program", "main.go"): file,
	}})
	require.NoError(p.t, err)
	layout := filepath.Join(dir, "overlay.json")
	require.NoError(p.t, os.WriteFile(layout, overlay, 0o600))

	p.binary = filepath.Join(dir, "program")
	build := exec.CommandContext(p.t.Context(), "go", "build", "-overlay", layout, "-o", p.binary, "./page_program")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(p.t, err, string(out))
}

// start runs the program; stop interrupts it, and requires that it ends well.
func (p *program) start() (stop func()) {
	p.t.Helper()
	p.log = &lockedBuffer{}
	cmd := exec.CommandContext(p.t.Context(), p.binary)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+p.dsn, "KAFKA_BROKERS="+p.broker)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	require.NoError(p.t, cmd.Start())
	ended := sync.OnceValue(cmd.Wait)
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = ended()
	})
	return func() {
		p.t.Helper()
		require.NoError(p.t, cmd.Process.Signal(os.Interrupt))
		require.NoError(p.t, ended(), p.log.String())
	}
}

// leavesSlowly has the broker take its time when the member leaves its group, as a real one may: the router's handlers
// have all ended by then, and it has not been closed.
func (p *program) leavesSlowly() {
	p.kafka.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		<-time.After(500 * time.Millisecond)
		return nil, nil, false
	})
}

func (p *program) exec(sql string) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), sql)
	require.NoError(p.t, err)
}

// becomes waits until a query of one number has that answer.
func (p *program) becomes(want int64, query string) {
	p.t.Helper()
	var got int64
	require.Eventually(p.t, func() bool {
		return p.pool.QueryRow(p.t.Context(), query).Scan(&got) == nil && got == want
	}, patient, 20*time.Millisecond, "%s: want %d", query, want)
}

// quotes gives what stands between the marks of a line of the page.
func (p *program) quotes(line string) string {
	p.t.Helper()
	found := regexp.MustCompile(line).FindStringSubmatch(p.page)
	require.NotNil(p.t, found, line)
	return found[1]
}

// The README's program does what stands around it: with that table and that payment, the account has its amount.
func TestReadme_ProgramRuns(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "../README.md", "payments")
	p.exec(p.quotes(`(?m)^psql "\$DATABASE_URL" -c "(.*)"$`))
	stop := p.start()
	kafkatest.Produce(t, []string{p.broker}, &kgo.Record{Topic: "payments", Value: []byte(p.quotes(`(?m)^echo '(.*)' \|`))})
	p.becomes(7, `select amount from balances`)
	kafkatest.Produce(t, []string{p.broker}, &kgo.Record{Topic: "payments", Value: []byte(`{"account": "nobody"}`)})
	p.becomes(1, `select count(*) from headrace.inbox where state = 2`)
	require.Eventually(t, func() bool { return len(kafkatest.ReadAll(t, []string{p.broker}, "payments.dlq")) == 1 }, patient, 50*time.Millisecond)
	stop()
	require.Contains(t, p.log.String(), `error="no such account"`)
	require.NotContains(t, p.log.String(), "ERROR")
}

// The program for a Router of one's own: an order is posted, one that cannot be is dead, and posted when it is replayed;
// the stop is quiet.
func TestRouterPage_ProgramRuns(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "../docs/router.md", "orders")
	p.exec(`create table accounts (id text primary key, balance bigint); insert into accounts values ('a-1', 0)`)
	brokers := []string{p.broker}
	kafkatest.Produce(
		t, brokers, &kgo.Record{Topic: "orders", Value: []byte(p.quotes("(?s)values like `(.*?)`"))},
		&kgo.Record{Topic: "orders", Value: []byte(`{"account": "a-2", "amount": 5}`)},
	)
	stop := p.start()
	p.becomes(-7, `select balance from accounts where id = 'a-1'`)
	require.Eventually(t, func() bool { return len(kafkatest.ReadAll(t, brokers, "orders.dlq")) == 1 }, patient, 50*time.Millisecond)

	p.exec(`insert into accounts values ('a-2', 0)`)
	for range 2 {
		summary, err := dlq.Replay(t.Context(), dlq.ReplayConfig{Read: dlq.ReadConfig{
			Client: kafka.ClientConfig{Brokers: brokers}, Topic: "orders.dlq",
		}})
		require.NoError(t, err)
		require.EqualValues(t, 1, summary.Sent)
	}
	p.becomes(-5, `select balance from accounts where id = 'a-2'`)
	committed := func() int64 { return kafkatest.Committed(t, brokers, "billing", "orders.billing.replay")[0] }
	require.Eventually(t, func() bool { return committed() == 2 }, patient, 50*time.Millisecond)
	p.becomes(2, `select count(*) from headrace.claim_starts where holder is not null`)
	p.leavesSlowly()
	stop()
	p.becomes(-5, `select balance from accounts where id = 'a-2'`)
	require.NotContains(t, p.log.String(), "ERROR")
}

// A topic that would lose letters ends the program at its start, and says so.
func TestRouterPage_ProgramRefusesALossyDeadLetterTopic(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "../docs/router.md", "orders")
	kafkatest.CreateTopic(t, []string{p.broker}, "orders.dlq", 2, "cleanup.policy", "compact")
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+p.dsn, "KAFKA_BROKERS="+p.broker)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "cleanup.policy")
}

// lockedBuffer is what a process writes while a test reads.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
