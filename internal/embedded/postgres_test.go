package embedded

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// holderEnv turns the test binary into a process that starts a server, says where, and waits to be killed.
const holderEnv = "HEADRACE_TEST_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) != "" {
		holdServer()
	}
	goleak.VerifyTestMain(m)
}

func holdServer() {
	server, err := Postgres(context.Background(), Config{})
	if err != nil {
		println("cannot start:", err.Error())
		os.Exit(1)
	}
	println(server.dir, server.Addr())
	select {}
}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	server, err := Postgres(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

func connect(t *testing.T, server *Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func setting(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var value string
	require.NoError(t, conn.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&value))
	return value
}

func TestPostgres(t *testing.T) {
	t.Parallel()

	t.Run("TakesConnectionsWhenItReturns", func(t *testing.T) {
		t.Parallel()
		conn := connect(t, start(t, Config{}))
		version := setting(t, conn, "server_version")
		require.Equal(t, string(Version), version+".0")
		require.Equal(t, "200", setting(t, conn, "max_connections"))
		require.Equal(t, "on", setting(t, conn, "synchronous_commit"))
		require.Equal(t, "off", setting(t, conn, "fsync"))
	})

	t.Run("DurableKeepsWhatProductionKeeps", func(t *testing.T) {
		t.Parallel()
		conn := connect(t, start(t, Config{Durable: true, Settings: map[string]string{"work_mem": "7MB"}}))
		require.Equal(t, "on", setting(t, conn, "fsync"))
		require.Equal(t, "on", setting(t, conn, "full_page_writes"))
		require.Equal(t, "7MB", setting(t, conn, "work_mem"))
	})

	t.Run("RefusesAWrongSettingWithTheServersOwnWords", func(t *testing.T) {
		t.Parallel()
		_, err := Postgres(t.Context(), Config{Settings: map[string]string{"no_such_parameter": "1"}})
		require.ErrorContains(t, err, "no_such_parameter")
	})
}

func TestServer(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*Server) error{
		"ComesBackAfterStopOnTheSameDataAndPort": (*Server).Stop,
		"ComesBackAfterKillOnTheSameDataAndPort": (*Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t, Config{})
			conn := connect(t, server)
			_, err := conn.Exec(t.Context(), "create table kept (id int); insert into kept values (7)")
			require.NoError(t, err)
			addr := server.Addr()

			require.NoError(t, stop(server))
			require.Error(t, conn.Ping(t.Context()))
			_, err = net.DialTimeout("tcp", addr, time.Second)
			require.Error(t, err, "nobody listens")

			require.NoError(t, server.Start(t.Context()))
			require.Equal(t, addr, server.Addr())
			var id int
			require.NoError(t, connect(t, server).QueryRow(t.Context(), "select id from kept").Scan(&id))
			require.Equal(t, 7, id)
		})
	}

	t.Run("RestartEndsEverySession", func(t *testing.T) {
		t.Parallel()
		server := start(t, Config{})
		conn := connect(t, server)
		require.NoError(t, server.Restart(t.Context()))
		require.Error(t, conn.Ping(t.Context()))
		require.NoError(t, connect(t, server).Ping(t.Context()))
	})

	t.Run("CloseRemovesTheDirectoryAndIsFinal", func(t *testing.T) {
		t.Parallel()
		server := start(t, Config{})
		require.NoError(t, server.Close())
		require.NoDirExists(t, server.dir)
		require.NoError(t, server.Close())
		require.ErrorContains(t, server.Start(t.Context()), "closed")
	})
}

func TestPostgres_LeavesNothingBehindWhenItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"=1")
	out, err := holder.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dir, addr, _ := strings.Cut(strings.TrimSpace(line), " ")
	require.DirExists(t, filepath.Join(dir, "data"), line)

	require.NoError(t, holder.Process.Kill())
	_ = holder.Wait()

	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	}, time.Minute, 50*time.Millisecond)
	_, err = net.DialTimeout("tcp", addr, time.Second)
	require.Error(t, err, "the server ended with its process")
}

func TestInstall(t *testing.T) {
	t.Parallel()

	t.Run("GivesEveryProcessTheSameInstallation", func(t *testing.T) {
		t.Parallel()
		first, err := install(t.Context())
		require.NoError(t, err)
		second, err := install(t.Context())
		require.NoError(t, err)
		require.Equal(t, first, second)
	})

	t.Run("MakesAgainWhatIsHalfMade", func(t *testing.T) {
		t.Parallel()
		home := cacheWithATinyArchive(t)
		root := filepath.Join(home, "postgres")
		require.NoError(t, os.MkdirAll(filepath.Join(root, "bin"), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(root, "bin", "pg_ctl"), []byte("cut short"), 0o600))
		in := &installation{
			bin:      filepath.Join(root, "bin"),
			template: filepath.Join(root, "template"),
			secret:   filepath.Join(root, "secret"),
		}
		require.NoError(t, in.make(t.Context(), home, root))
		require.FileExists(t, filepath.Join(in.template, "PG_VERSION"))
		password, err := in.password()
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(password), 26)
	})

	t.Run("SaysWhyAnArchiveCannotBeUnpacked", func(t *testing.T) {
		t.Parallel()
		home := cacheWithATinyArchive(t)
		name, err := filepath.Glob(filepath.Join(home, "*.txz"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name[0], []byte("not an archive"), 0o600))
		require.ErrorContains(t, unpack(home, filepath.Join(home, "postgres")), "unable to extract postgres archive")
	})
}

// cacheWithATinyArchive is a cache directory of the test's own. What its archive holds in place of Postgres are shell
// scripts: an initdb that leaves a PG_VERSION, and a pg_ctl that starts nothing. The real archive takes the race
// detector half a minute to unpack.
func cacheWithATinyArchive(t *testing.T) string {
	t.Helper()
	_, err := install(t.Context())
	require.NoError(t, err)
	home, err := cacheDir()
	require.NoError(t, err)
	archives, err := filepath.Glob(filepath.Join(home, "embedded-postgres-binaries-*-"+string(Version)+".txz"))
	require.NoError(t, err)
	require.Len(t, archives, 1)
	// Not t.TempDir: its parents are closed to the user that initdb runs as.
	own, err := os.MkdirTemp("", "headrace-cache-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(own)) })
	require.NoError(t, os.Chmod(own, 0o755))
	tiny, err := os.ReadFile(filepath.Join("testdata", "tiny.txz"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(own, filepath.Base(archives[0])), tiny, 0o600))
	return own
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = lock(ctx, path)
	require.ErrorIs(t, err, context.Canceled)

	unlock()
	unlock, err = lock(t.Context(), path)
	require.NoError(t, err)
	unlock()
}
