package compose

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// settings are the server parameters that compose.yaml gives Postgres.
func settings(t *testing.T) map[string]string {
	t.Helper()
	command := service(t, "postgres").Command
	require.Equal(t, "postgres", command[0])
	found := map[string]string{}
	for i := 1; i < len(command); i += 2 {
		require.Equal(t, "-c", command[i])
		name, value, is := strings.Cut(command[i+1], "=")
		require.True(t, is)
		found[name] = value
	}
	return found
}

// TestPostgres starts a server with the stack's parameters, and takes it away by way of Toxiproxy.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, embedded.Config{Settings: settings(t)})
	proxies := startToxiproxy(t, map[string]string{"postgres:5432": server.Addr()})
	dsn, err := url.Parse(server.DSN())
	require.NoError(t, err)
	dsn.Host = proxies.listen(t, "postgres")
	pool := pgtest.Pool(t, dsn.String())

	require.NoError(t, migrations.Up(t.Context(), pool))
	for name, value := range settings(t) {
		var got string
		require.NoError(t, pool.QueryRow(t.Context(), `select current_setting($1)`, name).Scan(&got))
		require.Equal(t, value, got, name)
	}
	requireRows(t, pool)

	proxies.enable(t, "postgres", false)
	require.Error(t, pool.Ping(t.Context()))
	proxies.enable(t, "postgres", true)
	requireRows(t, pool)
}

func requireRows(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from headrace.consumers`).Scan(&n))
	require.Zero(t, n)
}

// TestPostgres_KeepsItsDataWhereTheImageDoes: the image of Postgres 18 refuses a volume at the former place, below.
func TestPostgres_KeepsItsDataWhereTheImageDoes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "postgres", mounted(t, service(t, "postgres"), "/var/lib/postgresql"))
}
