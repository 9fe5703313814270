package idempotency_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// serveEnv makes the test binary a service of its own, on the database that it names.
const serveEnv = "HEADRACE_IDEMPOTENCY_SERVE"

// gateLock is an advisory lock that a handler waits for, inside its transaction, when the test holds it.
const gateLock = 4711

// serveAsProcess serves until its standard input ends, which it does with the test.
func serveAsProcess(dsn string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return fail(err)
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return fail(err)
	}
	keys, err := idempotency.New(pool, idempotency.Config{Principal: idempotency.OnePrincipal})
	if err != nil {
		return fail(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	fmt.Println("http://" + listener.Addr().String())
	mux := http.NewServeMux()
	mux.Handle("/charges", keys.Tx("charge", http.HandlerFunc(gated)))
	mux.Handle("/payouts", keys.External("payout", gatedOutside(pool), nil))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 0
}

// gated has its effect, and waits with it uncommitted while the gate is shut.
func gated(w http.ResponseWriter, r *http.Request) {
	id, err := effect(r)
	if err == nil {
		_, err = idempotency.Tx(r.Context()).Exec(r.Context(), "select pg_advisory_xact_lock_shared($1)", gateLock)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	created(w, id)
}

// gatedOutside has its effect where no transaction of the key's is, and waits there.
func gatedOutside(elsewhere *pgxpool.Pool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := idempotency.KeyOf(r.Context())
		var id int64
		err := elsewhere.QueryRow(r.Context(), "insert into effects (key) values ($1) returning id", key.Key).Scan(&id)
		if err == nil {
			_, err = elsewhere.Exec(r.Context(), "select pg_advisory_xact_lock_shared($1)", gateLock)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		created(w, id)
	})
}

// process starts a service, and gives its address and what kills it.
func process(t *testing.T, dsn string) (url string, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+dsn)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = in.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line), kill
}

// TestTwoProcesses is the whole promise: a hundred submissions of a key, one effect, whatever dies meanwhile.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(t *testing.T, pool *pgxpool.Pool, kill func()){
		"NothingDies": nil,
		"TheOwnersBackendIsKilled": func(t *testing.T, pool *pgxpool.Pool, _ func()) {
			t.Helper()
			var killed bool
			require.NoError(t, pool.QueryRow(t.Context(), "select pg_terminate_backend(pid) from pg_locks where "+waits).Scan(&killed))
			require.True(t, killed)
		},
		"TheOwnersProcessIsKilled": func(_ *testing.T, _ *pgxpool.Pool, kill func()) { kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hundred(t, "/charges", die, nil)
		})
		t.Run("External/"+name, func(t *testing.T) {
			t.Parallel()
			resolve := resolveAll
			if die == nil {
				resolve = nil
			}
			hundred(t, "/payouts", die, resolve)
		})
	}
}

// resolveAll is an operator who knows that it was done.
func resolveAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	keys, err := idempotency.New(pool, idempotency.Config{Principal: idempotency.OnePrincipal})
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "update headrace.idempotency set deadline = statement_timestamp() where status is null")
	require.NoError(t, err)
	list, err := keys.Unknown(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, keys.ResolveDone(t.Context(), list[0], idempotency.Answer{Status: http.StatusCreated}))
}

// waits finds the owner, who waits at the gate. Other tests have theirs in other databases of the same server.
const waits = "locktype = 'advisory' and objid = 4711 and not granted and " +
	"database = (select oid from pg_database where datname = current_database())"

// hundred has the owner of a key die, if at all, when it has had its effect and not answered. What nobody knows then is
// resolved.
func hundred(t *testing.T, path string, die func(*testing.T, *pgxpool.Pool, func()), resolve func(*testing.T, *pgxpool.Pool)) {
	t.Helper()
	submit := func(url string) response {
		return post(t.Context(), url, "k", "7", func(r *http.Request) { r.URL.Path = path })
	}
	dsn := pgtest.DSN(t, migrations.Up, withEffects)
	pool := pgtest.Pool(t, dsn)
	owner, kill := process(t, dsn)
	other, _ := process(t, dsn)

	gate, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = gate.Exec(t.Context(), "select pg_advisory_xact_lock($1)", gateLock)
	require.NoError(t, err)

	answers, first := make(chan response, 100), make(chan response, 1)
	go func() { first <- submit(owner) }()
	require.Eventually(t, func() bool {
		var n int
		return pool.QueryRow(t.Context(), "select count(*) from pg_locks where "+waits).Scan(&n) == nil && n == 1
	}, 20*time.Second, 5*time.Millisecond)

	var wg sync.WaitGroup
	for n := range 98 {
		wg.Go(func() { answers <- submit([]string{owner, other}[n%2]) })
	}
	wg.Wait()
	if die != nil {
		die(t, pool, kill)
		first <- <-first // it is over before the gate is opened
	}
	require.NoError(t, gate.Rollback(t.Context()))
	answers <- <-first
	if resolve != nil {
		require.Equal(t, http.StatusConflict, submit(other).status, "nobody knows")
		resolve(t, pool)
	}

	// The hundredth comes until it is answered.
	require.Eventually(t, func() bool {
		last := submit(other)
		if last.status != http.StatusCreated {
			return false
		}
		answers <- last
		return true
	}, 20*time.Second, 5*time.Millisecond)

	count := map[int]int{}
	for range 100 {
		r := <-answers
		count[r.status]++
	}
	require.Equal(t, 98, count[http.StatusConflict], count)
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from effects where key = 'k'").Scan(&n))
	require.Equal(t, 1, n)
	again := submit(other)
	require.True(t, again.replayed())
}
