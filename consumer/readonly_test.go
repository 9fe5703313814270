package consumer

import (
	"errors"
	"testing"

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
