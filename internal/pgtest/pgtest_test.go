package pgtest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/embedded"
)

var migrations atomic.Int32

func accounts(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "create table accounts (id int primary key, balance int not null)")
	return err
}

func countedAccounts(ctx context.Context, pool *pgxpool.Pool) error {
	migrations.Add(1)
	return accounts(ctx, pool)
}

func countAccounts(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from accounts").Scan(&n))
	return n
}

func openAccount(t *testing.T, pool *pgxpool.Pool, id int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "insert into accounts values ($1, 0)", id)
	require.NoError(t, err)
}

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("GivesEachTestItsOwnData", func(t *testing.T) {
		t.Parallel()
		one, other := New(t, countedAccounts), New(t, countedAccounts)
		openAccount(t, one, 1)
		require.Equal(t, 1, countAccounts(t, one))
		require.Equal(t, 0, countAccounts(t, other))
		require.EqualValues(t, 1, migrations.Load(), "migrated once, then copied")
	})

	t.Run("WithoutMigrationsIsEmpty", func(t *testing.T) {
		t.Parallel()
		var tables int
		err := New(t).QueryRow(t.Context(), "select count(*) from pg_tables where schemaname = 'public'").Scan(&tables)
		require.NoError(t, err)
		require.Zero(t, tables)
	})

	t.Run("DropsTheDatabaseWithTheTest", func(t *testing.T) {
		t.Parallel()
		var name string
		t.Run("inner", func(t *testing.T) { // not parallel: its end is waited for
			require.NoError(t, New(t).QueryRow(t.Context(), "select current_database()").Scan(&name))
		})
		var there bool
		err := New(t).QueryRow(t.Context(), "select exists (select from pg_database where datname = $1)", name).Scan(&there)
		require.NoError(t, err)
		require.False(t, there)
	})
}

func TestMakeTemplate_TellsTheMigrationsError(t *testing.T) {
	t.Parallel()
	broken := errors.New("no such thing")
	_, _, err := shared.template(t.Context(), []Migrate{func(context.Context, *pgxpool.Pool) error { return broken }})
	require.ErrorIs(t, err, broken)
}

func TestTerminate_EndsEverySessionOfTheDatabase(t *testing.T) {
	t.Parallel()
	pool := New(t, accounts)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.Equal(t, 1, Terminate(t, pool))
	_, err = conn.Exec(t.Context(), "select 1")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "57P01", pgErr.Code)
}

func TestServer_IsTheTestsOwn(t *testing.T) {
	t.Parallel()
	server := Server(t, embedded.Config{})
	pool := Pool(t, server.DSN())
	require.NoError(t, accounts(t.Context(), pool))
	openAccount(t, pool, 1)
	require.NoError(t, server.Kill())
	_, err := pool.Exec(t.Context(), "select 1")
	require.Error(t, err)
	require.NoError(t, server.Start(t.Context()))
	require.Equal(t, 1, countAccounts(t, pool), "what was committed survives")
}
