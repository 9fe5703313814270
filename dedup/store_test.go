package dedup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

func TestStore(t *testing.T) {
	t.Parallel()

	t.Run("ARouteThatHasRunWithTheOtherStoreIsRefused", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t, migrations.Up)
		in, err := Open(t.Context(), pool, Config{})
		require.NoError(t, err)
		t.Cleanup(in.Close)
		_, err = in.Route(t.Context(), named(RouteConfig{}))
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "update headrace.consumers set store = 1")
		require.NoError(t, err)

		_, err = in.Route(t.Context(), named(RouteConfig{}))
		require.ErrorIs(t, err, ErrStoreChanged)
		require.ErrorContains(t, err, "has run with the offset store, and this is the inbox")
		var hinted interface{ Hint() string }
		require.ErrorAs(t, err, &hinted)
		require.Contains(t, hinted.Hint(), "new name once the group's lag is 0")
	})
}
