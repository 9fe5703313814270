package consumer

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// readOnlyPool connects as a role would for which default_transaction_read_only is on.
func readOnlyPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// TestStart_ReadOnlyDatabase is the regression of a Check that said nil and a Run that failed at a route's number.
func TestStart_ReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		dsn      string
		migrate  bool
		problems int
	}{
		"IsRefusedByCheckAndRun":           {pgtest.DSN(t, migrations.Up, effectsTable), false, 1},
		"IsToldBesideAMissingSchema":       {pgtest.DSN(t), false, 2},
		"IsToldOnceWhereItCouldNotMigrate": {pgtest.DSN(t), true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBedOn(t, readOnlyPool(t, tc.dsn))
			cfg := b.config()
			cfg.Migrate = tc.migrate
			c, err := New(cfg, effectRoute("post"))
			require.NoError(t, err)
			for what, err := range map[string]error{"Check": c.Check(t.Context()), "Run": c.Run(t.Context())} {
				var start *StartError
				require.ErrorAs(t, err, &start, what)
				require.Len(t, start.Problems, tc.problems, "%s: %v", what, err)
				require.ErrorContains(t, err, "the database takes no writes", what)
				require.ErrorContains(t, err, "set default_transaction_read_only to off", what)
				require.Equal(t, tc.problems == 2, errors.Is(err, dedup.ErrNoSchema), what)
			}
		})
	}
}

// TestStart_RoleThatMayNotWrite is the regression of a route that failed at its number, or at its first record's row.
func TestStart_RoleThatMayNotWrite(t *testing.T) {
	t.Parallel()
	const all = "select, insert, update, delete on all tables in"
	for name, tc := range map[string]struct {
		grants []string
		wants  []string
	}{
		"NothingAtAll": {nil, []string{"permission denied for schema headrace", "fix: grant usage on schema headrace, and " + strings.TrimSuffix(all, " in")}},
		"MayRead": {
			[]string{"usage on schema headrace", "select on all tables in schema headrace", "insert on headrace.inbox"},
			[]string{
				"this role lacks insert on headrace.claim_starts, update on headrace.claim_starts, insert on headrace.consumers, " +
					"update on headrace.consumers, delete on headrace.inbox, update on headrace.inbox, " +
					"insert on headrace.offsets, update on headrace.offsets, delete on headrace.suspects, insert on headrace.suspects, update on headrace.suspects",
				"fix: grant " + all + " schema headrace",
			},
		},
		"FollowsTheFix": {[]string{"usage on schema headrace", all + " schema headrace"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBedOn(t, rolePool(t, pgtest.DSN(t, migrations.Up, effectsTable), tc.grants))
			c, err := New(b.config(), effectRoute("post"))
			require.NoError(t, err)
			err = c.Check(t.Context())
			if len(tc.wants) == 0 {
				require.NoError(t, err)
				return
			}
			for what, err := range map[string]error{"Check": err, "Run": c.Run(t.Context())} {
				var start *StartError
				require.ErrorAs(t, err, &start, what)
				for _, want := range tc.wants {
					require.ErrorContains(t, err, want, what)
				}
			}
		})
	}
}

// rolePool connects as a role of its own that has these grants.
func rolePool(t *testing.T, dsn string, grants []string) *pgxpool.Pool {
	t.Helper()
	role := "reader_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	owner := pgtest.Pool(t, dsn)
	_, err := owner.Exec(t.Context(), "create role "+role+" login password 'x'")
	require.NoError(t, err)
	for _, grant := range grants {
		_, err := owner.Exec(t.Context(), "grant "+grant+" to "+role)
		require.NoError(t, err)
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "x"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
