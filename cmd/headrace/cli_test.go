package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// result is what a command line came to.
type result struct {
	code     int
	out, err string
}

// cli is a shell with an environment of its own.
type cli struct {
	t   *testing.T
	env map[string]string
	// answer is what is typed, unless typed is; somebody is asked only if terminal is set.
	answer   string
	typed    io.Reader
	terminal bool
	width    int
}

func newCLI(t *testing.T, env ...string) *cli {
	t.Helper()
	c := &cli{t: t, env: map[string]string{}}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		c.env[name] = value
	}
	return c
}

// run runs a command in this process.
func (c *cli) run(args ...string) result {
	c.t.Helper()
	return c.runUntil(c.t.Context(), args...)
}

func (c *cli) runUntil(ctx context.Context, args ...string) result {
	c.t.Helper()
	var out, errs bytes.Buffer
	var in io.Reader = strings.NewReader(c.answer)
	if c.typed != nil {
		in = c.typed
	}
	code := run(ctx, args, streams{
		in: in, out: &out, err: &errs, width: c.width,
		getenv:     func(name string) string { return c.env[name] },
		inTerminal: c.terminal, outTerminal: c.terminal,
	})
	return result{code: code, out: out.String(), err: errs.String()}
}

// ok runs a command that must succeed.
func (c *cli) ok(args ...string) result {
	c.t.Helper()
	r := c.run(args...)
	require.Equal(c.t, exitOK, r.code, r.err)
	return r
}

// An unset variable of a script must not become "all of them".
func TestCommandLine_EmptyValueIsNotEverything(t *testing.T) {
	t.Parallel()
	replay := []string{"dlq", "replay", "--brokers", "127.0.0.1:1", "--topic", "orders.dlq", "--yes"}
	for _, flag := range []string{"--reason", "--source", "--group", "--route", "--format", "--since", "--until", "--id", "--at"} {
		r := newCLI(t).run(append(replay, flag, "")...)
		require.Equal(t, exitUsage, r.code, flag)
		require.Contains(t, r.err, flag+" is empty", flag)
	}
	r := newCLI(t).run(append(replay, "")...)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "an argument of 'headrace dlq replay' is empty")
}

func TestCommandLine(t *testing.T) {
	t.Parallel()

	t.Run("WrongOneIsToldWithItsFixAndExitCode2", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			line string
			env  string
			want []string
		}{
			{"migrat", "", []string{`unknown command "migrat" for 'headrace'`, "did you mean 'headrace migrate'?", "see 'headrace --help'"}},
			{"migrate upp", "", []string{`unknown command "upp"`, "did you mean 'headrace migrate up'?"}},
			{"migrate sideways", "", []string{"run one of: status, up"}},
			{"migrate up now", "", []string{`unexpected argument "now"`}},
			{"migrate up --force", "", []string{"unknown flag: --force", "see 'headrace migrate up --help'"}},
			{"migrate up", "", []string{"no database", "set DATABASE_URL"}},
			{"migrate status --json=maybe", "", []string{`"maybe"`}},
			{"dlq --topic x", "", []string{"unknown flag: --topic", "write flags after the command"}},
			{"dlq sho --topic x", "", []string{`unknown command "sho" for 'headrace dlq'`, "did you mean 'headrace dlq show'?"}},
			{"outbx status --json", "", []string{`unknown command "outbx" for 'headrace'`, "did you mean 'headrace outbox'?"}},
			{"dlq --topic x sho", "", []string{"unknown flag: --topic", "write flags after the command"}},
			{"dlq replay -n", "", []string{"unknown shorthand flag", "did you mean --dry-run?"}},
			{"dlq replay -x", "", []string{"unknown shorthand flag", "leave it out"}},
		} {
			r := newCLI(t, c.env).run(strings.Fields(c.line)...)
			require.Equal(t, exitUsage, r.code, c.line)
			require.Empty(t, r.out, c.line)
			for _, part := range append(c.want, "\n  fix: ") {
				require.Contains(t, r.err, part, c.line)
			}
		}
	})

	t.Run("EveryCommandHasAnExampleThatParses", func(t *testing.T) {
		t.Parallel()
		for _, cmd := range allCommands(newRoot(process())) {
			require.NotEmpty(t, cmd.Short, cmd.CommandPath())
			require.NotEmpty(t, cmd.Example, cmd.CommandPath())
			for _, line := range strings.Split(cmd.Example, "\n") {
				requireParses(t, line)
			}
		}
	})

	t.Run("HelpIsASuccess", func(t *testing.T) {
		t.Parallel()
		for _, line := range []string{"", "--help", "migrate", "migrate up --help", "help migrate"} {
			r := newCLI(t).ok(strings.Fields(line)...)
			require.Contains(t, r.out, "Usage:", line)
			require.Empty(t, r.err, line)
		}
	})

	t.Run("CompletionIsThere", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, newCLI(t).ok("completion", "bash").out, "headrace")
	})
}
