package pgtest

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// bench is a database seen directly and through a proxy.
type bench struct {
	proxy           *Proxy
	direct, proxied *pgxpool.Pool
}

func newBench(t *testing.T) bench {
	t.Helper()
	dsn := DSN(t, accounts)
	proxy := NewProxy(t, dsn)
	return bench{proxy: proxy, direct: Pool(t, dsn), proxied: Pool(t, proxy.DSN())}
}

// open inserts an account in a transaction of its own, through the proxy.
func (b bench) open(ctx context.Context, id int) error {
	tx, err := b.proxied.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "insert into accounts values ($1, 0)", id); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// requireLost wants an error after which the client cannot know whether its request was executed. pgx says "conn
// closed" for a reset that came in place of a reply; only SafeToRetry tells it from a request that was never sent.
func requireLost(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.False(t, pgconn.SafeToRetry(err), err)
	var answer *pgconn.PgError
	require.NotErrorAs(t, err, &answer)
}

func TestProxy(t *testing.T) {
	t.Parallel()

	t.Run("LetsThroughWhatNoRuleMatches", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.proxy.Once(SQL("no such text"), CutBefore)
		require.NoError(t, b.open(t.Context(), 1))
		_, err := b.proxied.CopyFrom(t.Context(), pgx.Identifier{"accounts"}, []string{"id", "balance"},
			pgx.CopyFromRows([][]any{{2, 0}, {3, 0}}))
		require.NoError(t, err)
		require.Equal(t, 3, countAccounts(t, b.direct))
	})

	t.Run("CutReplyCommitsAndNobodyIsTold", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		lost := b.proxy.Once(Commit, CutReply)
		requireLost(t, b.open(t.Context(), 1))
		<-lost
		require.Equal(t, 1, countAccounts(t, b.direct))
		require.NoError(t, b.open(t.Context(), 2), "a new connection is fine")
	})

	t.Run("CutBeforeCommitsNothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.proxy.Once(Commit, CutBefore)
		requireLost(t, b.open(t.Context(), 1))
		require.Equal(t, 0, countAccounts(t, b.direct))
	})

	t.Run("SwallowReplyLeavesTheClientWaiting", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		lost := b.proxy.Once(Commit, SwallowReply)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-lost
			cancel()
		}()
		require.ErrorIs(t, b.open(ctx, 1), context.Canceled)
		require.Eventually(t, func() bool { return countAccounts(t, b.direct) == 1 }, time.Minute, 10*time.Millisecond)
	})

	t.Run("HoldKeepsTheRequestUntilTheTestSaysSo", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		until := make(chan struct{})
		held := b.proxy.Once(Commit, Hold(until))
		done := make(chan error, 1)
		go func() { done <- b.open(t.Context(), 1) }()
		<-held
		require.Equal(t, 0, countAccounts(t, b.direct))
		close(until)
		require.NoError(t, <-done)
		require.Equal(t, 1, countAccounts(t, b.direct))
	})

	t.Run("HoldReplyExecutesAtOnce", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		until := make(chan struct{})
		b.proxy.Once(Commit, HoldReply(until))
		done := make(chan error, 1)
		go func() { done <- b.open(t.Context(), 1) }()
		require.Eventually(t, func() bool { return countAccounts(t, b.direct) == 1 }, time.Minute, 10*time.Millisecond)
		require.Empty(t, done)
		close(until)
		require.NoError(t, <-done)
	})

	t.Run("CutsAtEveryIndexOfASequence", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		require.NoError(t, b.open(t.Context(), 0))
		b.proxied.Reset()
		first := b.proxy.Requests()
		require.NoError(t, b.open(t.Context(), 1))
		sequence := b.proxy.Requests() - first
		require.GreaterOrEqual(t, sequence, 3, "begin, insert, commit")
		for i := range sequence {
			b.proxied.Reset()
			b.proxy.Once(At(b.proxy.Requests()+i), CutBefore)
			require.Error(t, b.open(t.Context(), 100+i))
		}
		require.Equal(t, 2, countAccounts(t, b.direct))
	})

	t.Run("AlwaysMeansUntilItIsStopped", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		stop := b.proxy.Always(SQL("INSERT INTO accounts"), CutBefore)
		for i := range 3 {
			require.Error(t, b.open(t.Context(), i))
		}
		stop()
		require.NoError(t, b.open(t.Context(), 1))
	})
}

func TestProxy_Connections(t *testing.T) {
	t.Parallel()

	t.Run("DownRefusesUntilAccept", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		conn, err := b.proxied.Acquire(t.Context())
		require.NoError(t, err)
		b.proxy.Down()
		_, err = conn.Exec(t.Context(), "select 1")
		conn.Release()
		require.Error(t, err)
		require.ErrorIs(t, b.open(t.Context(), 1), syscall.ECONNREFUSED)
		require.NoError(t, b.proxy.Accept())
		require.NoError(t, b.open(t.Context(), 1))
	})

	t.Run("PauseStopsEverythingUntilResume", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		require.NoError(t, b.open(t.Context(), 1))
		b.proxy.Pause()
		begun := b.proxy.Once(SQL("begin"), Action{})
		done := make(chan error, 1)
		go func() { done <- b.open(t.Context(), 2) }()
		<-begun
		arrived := b.proxy.Requests()
		for range 50 { // round trips enough for a whole transaction, had it gone on
			require.Equal(t, 1, countAccounts(t, b.direct))
		}
		require.Equal(t, arrived, b.proxy.Requests(), "no answer to begin, so no insert")
		require.Empty(t, done)
		b.proxy.Resume()
		require.NoError(t, <-done)
	})

	t.Run("CutAllResetsWhatWaitsInAPause", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		b.proxy.Pause()
		defer b.proxy.Resume()
		done := make(chan error, 1)
		client, err := net.Dial("tcp", b.proxy.Addr())
		require.NoError(t, err)
		go func() {
			_, err := client.Read(make([]byte, 1))
			done <- err
		}()
		require.Eventually(t, func() bool {
			b.proxy.CutAll()
			return len(done) == 1
		}, time.Minute, 10*time.Millisecond)
		require.ErrorIs(t, <-done, syscall.ECONNRESET)
		require.NoError(t, client.Close())
	})

	t.Run("ACancelRequestReachesTheServer", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		conn, err := pgx.Connect(t.Context(), b.proxy.DSN())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(t.Context())) }()
		asleep := b.proxy.Once(SQL("pg_sleep"), Action{})
		go func() {
			<-asleep
			// The server may not have begun the statement yet; a request that finds nothing to cancel is lost.
			for conn.PgConn().CancelRequest(t.Context()) == nil && t.Context().Err() == nil {
			}
		}()
		_, err = conn.Exec(t.Context(), "select pg_sleep(600)")
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "57014", pgErr.Code)
	})

	t.Run("TheServersLastWordsArrive", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		conn, err := b.proxied.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		require.Positive(t, Terminate(t, b.direct))
		_, err = conn.Exec(t.Context(), "select 1")
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "57P01", pgErr.Code)
	})
}
