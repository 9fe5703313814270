package migrations_test

import (
	"context"
	"io/fs"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestMigrations(t *testing.T) {
	t.Parallel()

	t.Run("EightProcessesStartOnAnEmptyDatabase", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t)
		var all errgroup.Group
		for range 8 {
			pool := pgtest.Pool(t, dsn)
			all.Go(func() error { return migrations.Up(t.Context(), pool) })
		}
		require.NoError(t, all.Wait())
		require.NoError(t, migrations.Check(t.Context(), pgtest.Pool(t, dsn)))
	})

	t.Run("UpTwiceDoesNothing", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t, migrations.Up)
		before, err := migrations.Status(t.Context(), pool)
		require.NoError(t, err)
		require.NoError(t, migrations.Up(t.Context(), pool))
		after, err := migrations.Status(t.Context(), pool)
		require.NoError(t, err)
		require.Equal(t, before, after)
	})

	t.Run("DownLeavesNothingAndUpIsPossibleAgain", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t, migrations.Up)
		down(t, pool, 0)
		var left int
		require.NoError(t, pool.QueryRow(t.Context(), `select (select count(*) from pg_class where relnamespace = 'headrace'::regnamespace
			and relkind in ('r', 'i', 'S', 'v') and relname !~ '^migrations')
			+ (select count(*) from pg_proc where pronamespace = 'headrace'::regnamespace)`).Scan(&left))
		require.Zero(t, left)
		require.NoError(t, migrations.Up(t.Context(), pool))
		require.NoError(t, migrations.Check(t.Context(), pool))
	})

	t.Run("RoutesThatHaveRunBeforeTheOffsetStoreHaveTheInbox", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t, migrations.Up)
		down(t, pool, 1)
		_, err := pool.Exec(t.Context(), "insert into headrace.consumers (consumer_group, route) values ('billing', 'post')")
		require.NoError(t, err)
		require.NoError(t, migrations.Up(t.Context(), pool))
		var store int
		require.NoError(t, pool.QueryRow(t.Context(), "select store from headrace.consumers").Scan(&store))
		require.Zero(t, store)
	})

	t.Run("LatestIsTheNewestFile", func(t *testing.T) {
		t.Parallel()
		names, err := fs.Glob(os.DirFS("."), "sql/*.sql")
		require.NoError(t, err)
		list, err := migrations.Status(t.Context(), pgtest.New(t, migrations.Up))
		require.NoError(t, err)
		require.Len(t, list, len(names))
		require.Equal(t, migrations.Latest, list[len(list)-1].Version)
		for _, m := range list {
			require.False(t, m.AppliedAt.IsZero(), m.Name)
		}
	})

	t.Run("EmptyDatabaseIsRefusedWithAHintAndLeftAlone", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		err := migrations.Check(t.Context(), pool)
		require.ErrorIs(t, err, migrations.ErrVersion)
		require.ErrorContains(t, err, "migrations.Up")
		require.ErrorContains(t, err, "'headrace migrate up'")
		list, err := migrations.Status(t.Context(), pool)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		require.True(t, list[0].AppliedAt.IsZero())
		require.False(t, hasSchema(t, pool))
	})

	t.Run("NewerDatabaseIsRefused", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t, migrations.Up)
		_, err := pool.Exec(t.Context(), "insert into headrace.migrations (version_id, is_applied) values (99, true)")
		require.NoError(t, err)
		err = migrations.Check(t.Context(), pool)
		require.ErrorIs(t, err, migrations.ErrVersion)
		require.ErrorContains(t, err, "version 99")
	})

	t.Run("SchemaMadeByAnAdministratorIsUsed", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, restrictedRole)
		cfg, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		cfg.ConnConfig.RuntimeParams["role"] = "headrace_restricted"
		cfg.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		defer pool.Close()
		require.NoError(t, migrations.Up(t.Context(), pool))
		require.NoError(t, migrations.Check(t.Context(), pool))
	})

	t.Run("UnreachableDatabaseIsNoMissingSchema", func(t *testing.T) {
		t.Parallel()
		pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nowhere?connect_timeout=1")
		require.NoError(t, err)
		defer pool.Close()
		err = migrations.Check(t.Context(), pool)
		require.Error(t, err)
		require.NotErrorIs(t, err, migrations.ErrVersion)
	})
}

// down takes back every migration after version.
func down(t *testing.T, pool *pgxpool.Pool, version int64) {
	t.Helper()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { require.NoError(t, db.Close()) }()
	p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("sql"), goose.WithTableName("headrace.migrations"))
	require.NoError(t, err)
	_, err = p.DownTo(t.Context(), version)
	require.NoError(t, err)
}

// restrictedRole makes a role that may use the schema but create none.
func restrictedRole(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `do $$ begin
		create role headrace_restricted;
	exception when duplicate_object or unique_violation then null; end $$;
	create schema headrace authorization headrace_restricted`)
	return err
}

func hasSchema(t *testing.T, pool *pgxpool.Pool) (has bool) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "select to_regnamespace('headrace') is not null").Scan(&has))
	return has
}
