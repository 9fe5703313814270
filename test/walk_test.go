package e2e

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// walk is a newcomer's way: the demo that stays up, and a shell beside it.
type walk struct {
	t   *testing.T
	w   *world            // for its patience
	bin map[string]string // the commands of this repository, by what the docs call them
}

// typed gives a command that runs as it stands in the README or in what the demo prints, but built before.
func (k *walk) typed(line string) *exec.Cmd {
	k.t.Helper()
	for told, path := range k.bin {
		if rest, ok := strings.CutPrefix(line, told); ok {
			return exec.CommandContext(k.t.Context(), "sh", "-c", "exec "+path+rest)
		}
	}
	require.Fail(k.t, "not a command of this repository", line)
	return nil
}

// runs types a line and gives what it prints.
func (k *walk) runs(line string) (out, errs string) {
	k.t.Helper()
	cmd := k.typed(line)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	require.NoError(k.t, cmd.Run(), "%s\n%s%s", line, &o, &e)
	return o.String(), e.String()
}

// TestNewcomersWalk does what the README says, command by command: the demo is run with --stay, and what it prints is
// typed in. The replayed orders have their effect, and the demo counts them.
func TestNewcomersWalk(t *testing.T) {
	t.Parallel()
	k := &walk{t: t, w: &world{t: t}, bin: map[string]string{
		"go run ./cmd/demo-consumer": built(t, "demo-consumer"),
		"go run ./cmd/headrace":      built(t, "headrace"),
	}}
	const first = "go run ./cmd/demo-consumer --stay"
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "\n"+first+" #")

	demo := k.typed(first + " --records 1500 --pace 500ms --outage 0 --payments-outage 0")
	var out lockedText
	demo.Stdout = &out
	said, err := demo.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, demo.Start())
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = demo.Process.Kill()
			_ = demo.Wait()
		}
	})
	commands := k.invitation(said)
	k.w.eventually("its report has come, on another pipe", func() bool { return strings.Contains(out.String(), "balanced: ") })
	dead := number(t, out.String(), `(?m)^\+ +(\d+) dead`)
	hopeless := number(t, out.String(), `id_conflict (\d+)`) + number(t, out.String(), `undecodable (\d+)`)
	require.Greater(t, dead, hopeless, "there is something to be replayed")
	require.Contains(t, out.String(), "\nbalanced: ")

	table, _ := k.runs(commands["dlq ls"])
	require.Equal(t, dead+2, strings.Count(table, "\n"), "a header, the letters and their sum: %s", table)
	require.Contains(t, table, "letters: ")
	shown, _ := k.runs(commands["dlq show"])
	require.Regexp(t, `(?m)^reason +\w+$`, shown)
	summary, _ := k.runs(commands["dlq replay"])
	require.Equal(t, dead, number(t, summary, `(?m)^matched +(\d+)`))
	sent := number(t, summary, `(?m)^sent +(\d+)`)
	require.GreaterOrEqual(t, sent, dead-hopeless)

	conn, err := pgx.Connect(t.Context(), regexp.MustCompile(`postgres://[^']+`).FindString(commands["psql"]))
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	k.w.eventually("the replayed orders have their effect", func() bool {
		var again int
		err := conn.QueryRow(t.Context(), `select count(*) from headrace.inbox where original is not null and state = 0`).Scan(&again)
		require.NoError(t, err)
		return again == dead-hopeless
	})
	require.NoError(t, conn.Close(t.Context()))

	require.NoError(t, demo.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, said)
	require.NoError(t, demo.Wait(), "exit code 0: the ledger balances")
	ended = true
	_, second, found := strings.Cut(out.String(), "\nbalanced: ")
	require.True(t, found)
	require.Contains(t, second, "\nbalanced: ")
	require.Equal(t, hopeless, number(t, second, `(?m)^\+ +(\d+) dead`))
	require.Contains(t, second, "0 orders charged twice")
}

// invitation waits until the demo stays, and gives the commands that it prints, by what they are.
func (k *walk) invitation(said io.Reader) map[string]string {
	k.t.Helper()
	commands := map[string]string{}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		for _, what := range []string{"dlq ls", "dlq show", "dlq replay"} {
			if strings.HasPrefix(line, "go run ./cmd/headrace "+what+" ") {
				commands[what] = line
			}
		}
		if strings.HasPrefix(line, "psql ") { // the last one
			commands["psql"] = line
			break
		}
	}
	require.Len(k.t, commands, 4, "the demo has ended")
	return commands
}

func number(t *testing.T, text, pattern string) (n int) {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, "%s in\n%s", pattern, text)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// lockedText is what a command has printed so far. Safe for concurrent use.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
