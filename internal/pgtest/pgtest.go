package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/embedded"
)

// DSNEnv names the environment variable with the server to use instead of an embedded one: the URL of a user who may
// create databases.
const DSNEnv = "HEADRACE_TEST_DSN"

const closeTimeout = 10 * time.Second

// Migrate brings a fresh database to the schema a test wants. Databases are copied from a template a function: pass
// functions, not closures over something that differs from test to test.
type Migrate func(ctx context.Context, pool *pgxpool.Pool) error

var shared sharedServer

// sharedServer is the server of the test binary and the templates on it.
type sharedServer struct {
	mu        sync.Mutex
	embedded  *embedded.Server // nil when DSNEnv names the server
	dsn       string
	templates map[string]string // the migrations' code pointers -> the template's name
}

// Main runs a package's tests, ends the shared server, looks for goroutines that the tests left running, and exits.
// It is all that a TestMain of a package with databases needs.
func Main(m *testing.M, ignore ...goleak.Option) {
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(ignore...); err != nil {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// New returns a pool on a fresh database with the migrations applied in their order. The test's end closes the pool and
// drops the database.
func New(t testing.TB, migrate ...Migrate) *pgxpool.Pool {
	t.Helper()
	return Pool(t, DSN(t, migrate...))
}

// DSN returns the URL of a fresh database with the migrations applied, dropped at the test's end with whatever is
// connected to it.
func DSN(t testing.TB, migrate ...Migrate) string {
	t.Helper()
	ctx := t.Context()
	admin, template, err := shared.template(ctx, migrate)
	require.NoError(t, err)
	name := newName()
	require.NoError(t, execute(ctx, admin, fmt.Sprintf("create database %s template %s", name, template)))
	t.Cleanup(func() {
		require.NoError(t, dropDatabase(context.WithoutCancel(ctx), admin, name))
	})
	return withDatabase(admin, name)
}

// Pool returns a pool on dsn that the test's end closes. A connection that the test never released fails it.
func Pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, closePool(pool))
	})
	return pool
}

// Server starts a server for this test alone, for tests that stop or kill it. The test's end closes it.
func Server(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	server, err := embedded.Postgres(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// Terminate ends every session of the pool's database, the pool's own too, with pg_terminate_backend, and says how many
// there were. Each gets 57P01.
func Terminate(t testing.TB, pool *pgxpool.Pool) int {
	t.Helper()
	ctx := t.Context()
	// A connection outside the pool, so that it can end the whole pool and live to count.
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	var ended int
	require.NoError(t, conn.QueryRow(ctx, `select count(pg_terminate_backend(pid)) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid()`).Scan(&ended))
	return ended
}

// template returns the URL of the server and the name of a database to copy, which it makes first if need be.
func (s *sharedServer) template(ctx context.Context, migrate []Migrate) (admin, name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The test that starts the server must not end it with its own context.
	ctx = context.WithoutCancel(ctx)
	if err := s.startLocked(ctx); err != nil {
		return "", "", err
	}
	key := keyOf(migrate)
	if name, made := s.templates[key]; made {
		return s.dsn, name, nil
	}
	if name, err = makeTemplate(ctx, s.dsn, migrate); err != nil {
		return "", "", err
	}
	s.templates[key] = name
	return s.dsn, name, nil
}

func (s *sharedServer) startLocked(ctx context.Context) error {
	if s.dsn != "" {
		return nil
	}
	s.templates = map[string]string{keyOf(nil): "template1"}
	if s.dsn = os.Getenv(DSNEnv); s.dsn != "" {
		return nil
	}
	server, err := embedded.Postgres(ctx, embedded.Config{})
	if err != nil {
		return err
	}
	s.embedded, s.dsn = server, server.DSN()
	return nil
}

// close ends an embedded server; on somebody else's server it drops the templates.
func (s *sharedServer) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.embedded != nil {
		return s.embedded.Close()
	}
	var errs []error
	for _, name := range s.templates {
		if name != "template1" {
			errs = append(errs, dropDatabase(context.Background(), s.dsn, name))
		}
	}
	return errors.Join(errs...)
}

func keyOf(migrate []Migrate) string {
	var key strings.Builder
	for _, m := range migrate {
		fmt.Fprintf(&key, "%x ", reflect.ValueOf(m).Pointer())
	}
	return key.String()
}

func makeTemplate(ctx context.Context, admin string, migrate []Migrate) (name string, err error) {
	name = newName()
	if err := execute(ctx, admin, "create database "+name); err != nil {
		return "", err
	}
	if err := apply(ctx, withDatabase(admin, name), migrate); err != nil {
		return "", errors.Join(fmt.Errorf("migrating a test database: %w", err), dropDatabase(ctx, admin, name))
	}
	return name, nil
}

// apply leaves no connection behind: a database that somebody is connected to cannot be copied.
func apply(ctx context.Context, dsn string, migrate []Migrate) (err error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePool(pool)) }()
	for _, m := range migrate {
		if err := m(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

func newName() string { return "headrace_" + strings.ReplaceAll(uuid.NewString(), "-", "") }

func dropDatabase(ctx context.Context, admin, name string) error {
	return execute(ctx, admin, fmt.Sprintf("drop database if exists %s with (force)", name))
}

func execute(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// withDatabase is dsn with another database.
func withDatabase(dsn, name string) string {
	return rewrite(dsn, func(u *url.URL) { u.Path = "/" + name })
}

// rewrite edits a URL. What is not one is returned as it is: connecting says what is wrong with it.
func rewrite(dsn string, edit func(*url.URL)) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn
	}
	edit(u)
	return u.String()
}

// closePool closes the pool, and gives up on connections that are never released instead of waiting for ever.
func closePool(pool *pgxpool.Pool) error {
	done := make(chan struct{})
	go func() {
		pool.Close()
		close(done)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%d connections were not released within %s", pool.Stat().AcquiredConns(), closeTimeout)
	}
}
