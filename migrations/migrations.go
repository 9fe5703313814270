package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/headrace/headrace/internal/pools"
)

// Latest is the version of the schema that this build of Headrace works with.
const Latest int64 = 10

const (
	// versionTable is where goose keeps what was applied: out of the way of a goose that the application itself uses.
	versionTable = "headrace.migrations"
	// lockKey is an arbitrary number that nobody else is likely to take: "headrace" in ASCII.
	lockKey int64 = 0x6865616472616365
)

// ErrVersion reports a database whose schema is missing, behind or ahead of Latest. Match with errors.Is; the error's
// text says which and what to do.
var ErrVersion = errors.New("database schema does not fit")

// howToMigrate is the fix that a missing or old schema's error names.
const howToMigrate = "run 'headrace migrate up', set Config.Migrate, or call migrations.Up"

//go:embed sql/*.sql
var files embed.FS

// Migration is one step and whether it was applied.
type Migration struct {
	// Version is its number: 1 is the first.
	Version int64
	// Name is the file's name.
	Name string
	// AppliedAt is zero for one that was not.
	AppliedAt time.Time
}

// Up applies what is missing. It is safe to call from many processes at once and does nothing on a database that is up
// to date. It uses connections of its own, at most four, opened from pool's configuration. After an error what was applied
// before stays, and it may be called again.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := Apply(ctx, pool)
	return err
}

// Apply is Up that says what it has applied itself: nothing where another process was first.
func Apply(ctx context.Context, pool *pgxpool.Pool) (applied []Migration, err error) {
	err = exclusively(ctx, pool, func(p *goose.Provider) error {
		results, err := p.Up(ctx)
		for _, r := range results {
			applied = append(applied, Migration{Version: r.Source.Version, Name: path.Base(r.Source.Path), AppliedAt: time.Now()})
		}
		return err
	})
	return applied, err
}

// Status lists every migration of this build, in order.
func Status(ctx context.Context, pool *pgxpool.Pool) ([]Migration, error) {
	list, err := embedded()
	if err != nil {
		return nil, err
	}
	applied, err := applied(ctx, pool)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].AppliedAt = applied[list[i].Version]
	}
	return list, nil
}

// Version is the newest version that was applied, 0 for a database without Headrace's schema.
func Version(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	applied, err := applied(ctx, pool)
	if err != nil {
		return 0, err
	}
	var newest int64
	for v := range applied {
		newest = max(newest, v)
	}
	return newest, nil
}

// Check is nil when the database's schema is exactly Latest: a build that is older than its database is refused too. Otherwise
// the error is an ErrVersion, whose text says what to do, or what kept the database from answering.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	have, err := Version(ctx, pool)
	switch {
	case err != nil:
		return err
	case have == 0:
		return fmt.Errorf("%w: it has no schema \"headrace\" (%s)", ErrVersion, howToMigrate)
	case have < Latest:
		return fmt.Errorf("%w: it is at version %d, this build needs %d (%s)",
			ErrVersion, have, Latest, howToMigrate)
	case have > Latest:
		return fmt.Errorf("%w: it is at version %d, this build knows %d (deploy a newer build)", ErrVersion, have, Latest)
	}
	return nil
}

// exclusively runs f while holding the lock in a transaction of another connection: the lock ends with that transaction,
// whatever becomes of the process. The connections are of a pool of its own: the caller's may have room for one only.
func exclusively(ctx context.Context, pool *pgxpool.Pool, f func(*goose.Provider) error) error {
	own, shut, err := pools.Open(ctx, poolConfig(pool), "headrace migrate")
	if err != nil {
		return fmt.Errorf("open a pool to migrate: %w", err)
	}
	defer shut()
	guard, err := own.Begin(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pools.Grace) // a server that hangs ends the lock as well
		defer cancel()
		_ = guard.Rollback(ctx)
	}()
	// Others may wait long behind a big migration: the database's own time limits are not for this transaction.
	const patient = "set local lock_timeout = 0; set local statement_timeout = 0; " +
		"set local idle_in_transaction_session_timeout = 0"
	if _, err := guard.Exec(ctx, patient); err != nil {
		return fmt.Errorf("lift time limits: %w", err)
	}
	if _, err := guard.Exec(ctx, "select pg_advisory_xact_lock($1)", lockKey); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return withProvider(ctx, own, f)
}

func withProvider(ctx context.Context, pool *pgxpool.Pool, f func(*goose.Provider) error) (err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := createSchema(ctx, db); err != nil {
		return err
	}
	sub, err := fs.Sub(files, "sql")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, sub, goose.WithTableName(versionTable))
	if err != nil {
		return err
	}
	return f(p)
}

// createSchema asks before it creates: "create schema if not exists" is refused to a role without the right even where
// the schema exists.
func createSchema(ctx context.Context, db *sql.DB) error {
	var exists bool
	if err := db.QueryRowContext(ctx, "select to_regnamespace('headrace') is not null").Scan(&exists); err != nil {
		return err
	}
	if exists {
		return nil
	}
	if _, err := db.ExecContext(ctx, "create schema headrace"); err != nil {
		return fmt.Errorf("create schema headrace: %w", err)
	}
	return nil
}

// poolConfig is pool's, small and without named prepared statements: a pooler in transaction mode loses them.
func poolConfig(pool *pgxpool.Pool) *pgxpool.Config {
	cfg := pool.Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 4, 0, 0
	return cfg
}

func embedded() ([]Migration, error) {
	names, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return nil, err
	}
	list := make([]Migration, len(names))
	for i, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		list[i] = Migration{Version: v, Name: name[len("sql/"):]}
	}
	return list, nil
}

// applied asks goose's table itself and not its provider, which would create the table in a database that is only
// looked at.
func applied(ctx context.Context, pool *pgxpool.Pool) (map[int64]time.Time, error) {
	rows, err := pool.Query(ctx, "select version_id, tstamp from "+versionTable+
		" where version_id > 0 and is_applied", pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	list := map[int64]time.Time{}
	var version int64
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
		list[version] = at
		return nil
	})
	if missing(err) {
		return nil, nil
	}
	return list, err
}

// missing knows by code, never by text: servers speak many languages.
func missing(err error) bool {
	const undefinedTable, invalidSchema = "42P01", "3F000"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == undefinedTable || pg.Code == invalidSchema)
}
