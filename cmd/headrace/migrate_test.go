package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

func TestMigrate(t *testing.T) {
	t.Parallel()

	t.Run("UpAppliesOnceAndStatusTellsBoth", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t)
		all, err := migrations.Status(t.Context(), pgtest.Pool(t, dsn))
		require.NoError(t, err)
		c := newCLI(t, "DATABASE_URL="+dsn)

		r := c.ok("migrate", "status")
		var files, applied string
		for _, m := range all {
			files += fmt.Sprintf("%7d  pending  %s\n", m.Version, m.Name)
			applied += fmt.Sprintf("applied %s\n", m.Name)
		}
		pending := fmt.Sprintf("the database is at version 0 of %d, %d pending: run 'headrace migrate up'\n", migrations.Latest, len(all))
		require.Equal(t, "VERSION  APPLIED  NAME\n"+files+pending, r.out)
		require.Empty(t, r.err)

		r = c.ok("migrate", "up")
		latest := fmt.Sprintf("schema headrace is at version %d, the latest of this build\n", migrations.Latest)
		require.Equal(t, applied+latest, r.out)
		require.Empty(t, r.err)
		r = c.ok("migrate", "up")
		require.Equal(t, "nothing to do\n"+latest, r.out)

		var st status
		require.NoError(t, json.Unmarshal([]byte(c.ok("migrate", "status", "--json").out), &st))
		require.Equal(t, migrations.Latest, st.Version)
		require.Zero(t, st.Pending)
		require.Len(t, st.Migrations, len(all))
		require.WithinDuration(t, time.Now(), *st.Migrations[0].AppliedAt, time.Hour)
	})

	t.Run("ANewerDatabaseIsLeftAlone", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up)
		_, err := pgtest.Pool(t, dsn).Exec(t.Context(), "insert into headrace.migrations (version_id, is_applied) values (99, true)")
		require.NoError(t, err)
		c := newCLI(t, "DATABASE_URL="+dsn)
		r := c.run("migrate", "up")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "version 99")
		require.Contains(t, c.ok("migrate", "status").out, "use a newer build")
	})

	t.Run("ARoleThatMayNotIsToldWhatItNeeds", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t)
		pool := pgtest.Pool(t, dsn)
		_, err := pool.Exec(t.Context(), `do $$ begin create role headrace_nobody login password 'nobody-pw';
			exception when duplicate_object or unique_violation then null; end $$`)
		require.NoError(t, err)
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		u.User = url.UserPassword("headrace_nobody", "nobody-pw")
		r := newCLI(t).run("migrate", "up", "--dsn", u.String())
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "permission denied")
		require.Contains(t, r.err, "create schema headrace authorization")
		require.NotContains(t, r.err, "nobody-pw")
	})
}

// The password stays where it is, whatever is wrong with the connection string and however the database refuses.
func TestDSN_PasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	good, err := url.Parse(pgtest.DSN(t))
	require.NoError(t, err)
	for name, dsn := range map[string]string{
		"no such server":     "postgres://me:hunter2-secret@127.0.0.1:1/db",
		"no such database":   "postgres://" + good.User.Username() + ":hunter2-secret@" + good.Host + "/hunter2-secret",
		"slash in it":        "postgres://me:hunter2-secret/x@127.0.0.1:1/db",
		"at sign in it":      "postgres://me:hunter2-secret@x@127.0.0.1:1/db",
		"head of it is port": "postgres://me:99/hunter2-secret@127.0.0.1:1/db",
		"second at sign":     "postgres://me:p@hunter2-secret@localhost:1/db",
		"colon in it":        "postgres://me:hunter2-secret:x@127.0.0.1:1/db",
		"percent in it":      "postgres://me:hunter2-secret%zz@127.0.0.1:1/db",
		"port is none":       "postgres://me:hunter2-secret@127.0.0.1:port/db",
		"keywords":           "host=127.0.0.1 port=1 user=me password=hunter2-secret",
		"keywords, broken":   "host=127.0.0.1 port=none user=me password=hunter2-secret",
		"quoted":             "host=127.0.0.1 port=1 password='hunter2-secret x'",
		"as a parameter":     "postgres://127.0.0.1:1/db?password=hunter2-secret",
		"no such ssl mode":   "postgres://me:hunter2-secret@127.0.0.1:1/db?sslmode=hunter2-secret",
		"not a url":          "hunter2-secret",
		"no such pool value": "postgres://me:hunter2-secret@127.0.0.1:1/db?pool_max_conns=hunter2-secret",
	} {
		for _, c := range []struct {
			cli  *cli
			args []string
		}{
			{newCLI(t), []string{"migrate", "status", "--dsn", dsn}},
			{newCLI(t, "DATABASE_URL="+dsn), []string{"migrate", "up"}},
		} {
			r := c.cli.run(c.args...)
			require.NotEqual(t, exitOK, r.code, name)
			require.NotContains(t, r.out+r.err, "hunter2", name)
			require.Contains(t, r.err, "fix: ", name)
		}
	}
}

func TestMigrateUp_OfFourAtOnceOneSaysThatItApplied(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	outs := make(chan string, 4)
	for range cap(outs) {
		go func() {
			r := newCLI(t).run("migrate", "up", "--dsn", dsn)
			outs <- r.out + r.err
		}()
	}
	applied, nothing := 0, 0
	for range cap(outs) {
		out := <-outs
		applied += strings.Count(out, "applied 00001_inbox.sql\n")
		nothing += strings.Count(out, "nothing to do\n")
	}
	require.Equal(t, []int{1, 3}, []int{applied, nothing})
}

func TestMigrate_InterruptedWhileItConnectsBlamesNobody(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { stop(errors.New("interrupt signal received")) })
	r := newCLI(t).runUntil(ctx, "migrate", "up", "--dsn", "postgres://me@"+silent.Addr().String()+"/db")
	require.Equal(t, result{code: exitFailed, err: "headrace: interrupt signal received\n"}, r)
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutput_ThatCannotBeWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	var complaints strings.Builder
	s := streams{in: strings.NewReader(""), out: fullDisk{}, err: &complaints, getenv: func(string) string { return "" }}
	require.Equal(t, exitFailed, run(t.Context(), []string{"version"}, s))
	require.Contains(t, complaints.String(), "not everything could be written to standard output: no space left on device")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^headrace \S+.* go1\.\d+`, newCLI(t).ok("version").out)
	require.Equal(t, "headrace v1.2.3 0123456789ab+changes go1.26.0", versionLine(&debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}},
	}))
	require.Equal(t, "headrace (unknown build)", versionLine(nil))
}
