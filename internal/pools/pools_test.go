package pools_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/pools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frozen lets clients in and answers nothing after that, as a server does that was sent SIGSTOP. It tells what they call
// themselves.
type frozen struct{ names chan string }

func (f frozen) dial(context.Context, string, string) (net.Conn, error) {
	pipe, server := net.Pipe()
	client := ended{pipe, new(sync.Once), make(chan struct{})}
	go func() {
		defer func() { _ = server.Close() }()
		backend := pgproto3.NewBackend(server, server)
		hello, err := backend.ReceiveStartupMessage()
		start, ok := hello.(*pgproto3.StartupMessage)
		if err == nil && ok {
			f.names <- start.Parameters["application_name"]
			backend.Send(&pgproto3.AuthenticationOk{})
			backend.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: make([]byte, 4)})
			backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			_ = backend.Flush()
		}
		<-client.over
	}()
	return client, nil
}

// ended is closed with the client's end of a line.
type ended struct {
	net.Conn

	once *sync.Once
	over chan struct{}
}

func (e ended) Close() error {
	e.once.Do(func() { close(e.over) })
	return e.Conn.Close()
}

func (f frozen) config(t *testing.T, dsn string) *pgxpool.Config {
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.ConnConfig.DialFunc = f.dial
	cfg.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 3 * time.Second}
	}
	return cfg
}

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("StopTakesAQuarterOfAMinuteAPoolWhileTheServerHangs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			server := frozen{make(chan string, 10)}
			pool, closes, err := pools.Open(t.Context(), server.config(t, "postgres://u@db/x?sslmode=disable"), "headrace billing")
			require.NoError(t, err)
			idle, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = pool.Exec(ctx, "select 1")
			require.Error(t, err, "cut off, and its cancel request waits for an answer")
			idle.Release()
			began := time.Now()
			closes()
			require.LessOrEqual(t, time.Since(began), pools.Grace)
		})
	})

	for _, c := range []struct{ name, dsn, want string }{
		{"NamesItsSessions", "postgres://u@db/x?sslmode=disable", "headrace billing"},
		{"LeavesTheUsersNameAlone", "postgres://u@db/x?sslmode=disable&application_name=mine", "mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := frozen{make(chan string, 10)}
				pool, closes, err := pools.Open(t.Context(), server.config(t, c.dsn), "headrace billing")
				require.NoError(t, err)
				conn, err := pool.Acquire(t.Context())
				require.NoError(t, err)
				conn.Release()
				closes()
				require.Equal(t, c.want, <-server.names)
			})
		})
	}
}
