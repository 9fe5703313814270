package fault_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

func pg(code string) error {
	return &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: code}
}

func TestSQLState(t *testing.T) {
	t.Parallel()
	var rows []row
	add := func(class fault.Class, codes ...string) {
		for _, code := range codes {
			r := row{name: code, err: pg(code), class: class, rule: "sqlstate " + code}
			if class == fault.ClassUnavailable {
				r.dep = fault.Database
			}
			rows = append(rows, r)
		}
	}
	add(fault.ClassTransient, "40000", "40001", "40P01", "57014", "25P02", "25P03", "25P04", "26000", "42P05", "53400", "55006", "72000",
		"XX000", "XX001", "XX002")
	add(fault.ClassBusy, "55P03")
	add(fault.ClassUnavailable, "57P01", "57P02", "57P03", "57P04", "57P05", "57000", "53000", "53100", "53200", "53300",
		"08000", "08001", "08003", "08006", "08P01", "25006", "28000", "28P01", "3D000", "58000", "58030", "58P01", "F0000")
	add(fault.ClassPermanent, "23502", "23503", "23505", "23514", "23P01", "22001", "22003", "22012", "22P02", "42501", "42601", "42703",
		"42P01", "25001", "40002", "54000", "55000", "P0001", "0A000", "21000", "ZZ999", "", "4", "57")
	for _, code := range []string{"08007", "40003"} {
		rows = append(rows, row{name: code, err: pg(code), class: fault.ClassTransient, rule: "sqlstate " + code, split: true, call: fault.ClassAmbiguous})
	}
	check(t, rows)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	stale := &pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery"}
	fatal := &pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "0A000"}
	down := func(name, rule string, err error) row {
		return row{name: name, err: err, class: fault.ClassUnavailable, dep: fault.Database, rule: rule}
	}
	check(t, []row{
		down("ConnectRefused", "postgres connect", connectError(t, closedPort(t))),
		down("ConnectTooManyClients", "postgres connect", connectError(t, postgresServer(t, refuseWith("53300")))),
		down("ConnectPasswordRefused", "postgres connect", connectError(t, postgresServer(t, refuseWith("28P01")))),
		down("ConnectDropped", "postgres connect", connectError(t, postgresServer(t, func(*pgproto3.Backend) {}))),
		down("ConnectMisconfigured", "postgres connect", parseError(t)),
		down("UsedAfterItsConnectionClosed", "postgres connection closed", closedConnError(t)),
		down("PoolClosed", "postgres connection closed", closedPoolError(t)),
		down("DatabaseSQLBadConn", "postgres connection closed", driver.ErrBadConn),
		down("FatalOfAnUnlistedCode", "sqlstate 0A000", fatal),
		{name: "PlanMadeStaleByAMigration", err: stale, class: fault.ClassTransient, rule: "sqlstate 0A000"},
		{name: "AnotherDriver", err: otherDriver("40001"), class: fault.ClassTransient, rule: "sqlstate 40001"},
		{name: "AnotherDriverUnlisted", err: otherDriver("0A000"), class: fault.ClassPermanent, rule: "sqlstate 0A000"},
		{name: "BusyConnection", err: busyConnError(t), class: fault.ClassTransient, rule: "postgres not sent"},
		{name: "DeadlineBeforeSend", err: lateError(t), class: fault.ClassTransient, rule: "postgres timeout before send"},
		{name: "DeadlineWhileItRuns", err: deadlineError(t), class: fault.ClassTransient, rule: "postgres timeout", split: true, call: fault.ClassAmbiguous},
		{name: "ConnectionDroppedWhileItRuns", err: droppedError(t), class: fault.ClassAmbiguous, rule: "connection lost"},
		{name: "LostBeforeSend", err: ioError{true, net.ErrClosed}, class: fault.ClassUnavailable, dep: fault.Database, rule: "postgres connection lost"},
	})

	t.Run("LostWhileItRunsIsAnOutageToAnApply", func(t *testing.T) {
		t.Parallel()
		var c fault.Classifier
		require.Equal(t, fault.ClassUnavailable, c.Classify(t.Context(), ioError{false, net.ErrClosed}).Class)
		require.Equal(t, fault.ClassAmbiguous, c.ClassifyCall(t.Context(), ioError{false, net.ErrClosed}).Class)
		require.Equal(t, "unknown", c.Classify(t.Context(), ioError{false, errPlain}).Rule)
	})
}

// otherDriver is an error of lib/pq and its like.
type otherDriver string

func (e otherDriver) Error() string    { return "sqlstate " + string(e) }
func (e otherDriver) SQLState() string { return string(e) }

// ioError is pgx's own error, which has no exported constructor.
type ioError struct {
	safe bool
	err  error
}

func (e ioError) Error() string     { return "io" }
func (e ioError) SafeToRetry() bool { return e.safe }
func (e ioError) Unwrap() error     { return e.err }

func connectError(t *testing.T, addr string) error {
	t.Helper()
	_, err := pgconn.Connect(t.Context(), dsn(addr))
	var connect *pgconn.ConnectError
	require.ErrorAs(t, err, &connect)
	return err
}

func parseError(t *testing.T) error {
	t.Helper()
	_, err := pgconn.ParseConfig("postgres://localhost:port")
	return err
}

func closedConnError(t *testing.T) error {
	t.Helper()
	conn := connect(t, silent)
	require.NoError(t, conn.Close(t.Context()))
	return conn.Exec(t.Context(), "select 1").Close()
}

func closedPoolError(t *testing.T) error {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn(closedPort(t)))
	require.NoError(t, err)
	pool.Close()
	_, err = pool.Acquire(t.Context())
	return err
}

func busyConnError(t *testing.T) error {
	t.Helper()
	conn := connect(t, silent)
	conn.Exec(t.Context(), "select 1")
	return conn.Exec(t.Context(), "select 2").Close()
}

func lateError(t *testing.T) error {
	t.Helper()
	return connect(t, silent).Exec(expired(t, nil), "select 1").Close()
}

// deadlineError is of a statement that was sent: the deadline strikes once the server has read it.
func deadlineError(t *testing.T) error {
	t.Helper()
	ctx := &strikes{Context: t.Context(), done: make(chan struct{})}
	err := connect(t, func(b *pgproto3.Backend) {
		_, _ = b.Receive()
		close(ctx.done)
		silent(b)
	}).Exec(ctx, "select 1").Close()
	require.False(t, pgconn.SafeToRetry(err))
	return err
}

// strikes is a context whose deadline strikes when done closes.
type strikes struct {
	context.Context
	done chan struct{}
}

func (c *strikes) Done() <-chan struct{} { return c.done }

func (c *strikes) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func droppedError(t *testing.T) error {
	t.Helper()
	return connect(t, func(b *pgproto3.Backend) { _, _ = b.Receive() }).Exec(t.Context(), "select 1").Close()
}

func connect(t *testing.T, session func(*pgproto3.Backend)) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), dsn(postgresServer(t, welcome(session))))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func dsn(addr string) string {
	return fmt.Sprintf("postgres://user:secret@%s/db?sslmode=disable", addr)
}

// postgresServer speaks just enough of the protocol to fail in each way: session gets every connection after its
// startup message, and the connection is closed when session returns.
func postgresServer(t *testing.T, session func(*pgproto3.Backend)) string {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		b := pgproto3.NewBackend(conn, conn)
		if _, err := b.ReceiveStartupMessage(); err == nil {
			session(b)
		}
	})
}

func refuseWith(code string) func(*pgproto3.Backend) {
	return func(b *pgproto3.Backend) {
		b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code})
		_ = b.Flush()
	}
}

func welcome(session func(*pgproto3.Backend)) func(*pgproto3.Backend) {
	return func(b *pgproto3.Backend) {
		b.Send(&pgproto3.AuthenticationOk{})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() == nil {
			session(b)
		}
	}
}

// silent reads and never answers, until the client goes.
func silent(b *pgproto3.Backend) {
	for {
		if _, err := b.Receive(); err != nil {
			return
		}
	}
}

// serve runs session on every connection to a listener, which ends with the test.
func serve(t *testing.T, session func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				session(conn)
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
