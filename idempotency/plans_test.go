package idempotency_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// plan is what EXPLAIN says of one node.
type plan struct {
	Node  string `json:"Node Type"`
	Hit   int64  `json:"Shared Hit Blocks"`
	Read  int64  `json:"Shared Read Blocks"`
	Plans []plan `json:"Plans"`
}

func (p plan) scans() bool {
	for _, c := range p.Plans {
		if c.scans() {
			return true
		}
	}
	return p.Node == "Seq Scan"
}

// many is how many finished keys there are, of which a hundredth is past its retention, and as many are unknown and as
// many running beside them.
const many = 100_000

// TestPlans executes each statement until its plan is kept, on an empty table, fills that with rows that nobody analyses,
// and counts the pages that the statements then touch: that is a service that has started on an empty database.
func TestPlans(t *testing.T) {
	t.Parallel()
	keys, err := idempotency.New(pgtest.New(t), idempotency.Config{Principal: idempotency.OnePrincipal, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t, migrations.Up))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	exec := func(sql string) {
		_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, sql)
	}
	for name, sql := range keys.Statements() {
		exec("prepare p_" + name + " as " + sql)
	}
	queries := planned()
	for range 8 {
		for _, q := range queries {
			explain(t, conn, exec, q)
		}
	}
	exec(fmt.Sprintf(`alter table headrace.idempotency set (autovacuum_enabled = off);
		insert into headrace.idempotency (route, method, principal, key, fingerprint, token, status, header, body, started_at, deadline, finished_at)
		select 'charge', 'POST', '-', 'k' || n, '\x00', '%[1]s', case kind when 'f' then 201 end, '', repeat('x', 200)::bytea, past,
			case kind when 'r' then now() + interval '1 h' when 'u' then past end, case kind when 'f' then past end
		from (select n, now() - interval '1 s' * (n + case when n %% 100 = 0 then 40 * 86400 else 1 end) as past,
			case when n > %[3]d then 'u' when n > %[2]d then 'r' else 'f' end as kind from generate_series(1, %[4]d) n) s`,
		noRun, many, many+many/100, many+2*many/100))
	for _, q := range queries {
		p := explain(t, conn, exec, q)
		require.False(t, p.scans(), q.statement)
		t.Logf("%-8s %6d pages", q.statement, p.Hit+p.Read)
		require.LessOrEqual(t, p.Hit+p.Read, q.pages, q.statement)
	}
}

const noRun = "00000000-0000-0000-0000-000000000000"

// statement is one with its arguments, and how many pages it may touch.
type statement struct {
	statement, args string
	pages           int64
}

func planned() []statement {
	key := func(n int, more ...string) string {
		return strings.Join(append([]string{fmt.Sprintf("'charge', 'POST', '-', 'k%d'", n)}, more...), ", ")
	}
	const token = "'" + noRun + "'"
	const finished, running, unknown = many / 2, many + 7, many + many/100 + 7
	return []statement{
		{"look", key(finished), 20},
		{"insert", key(-1, "'x'", token, "201::smallint", "''", "''", "''"), 40},
		{"claim", key(-1, "'x'", token), 40},
		{"claim", key(finished, "'x'", token), 40},
		{"finish", key(running, token, "201::smallint", "''", "''"), 60},
		{"free", key(running, token), 20},
		{"leave", key(running, token, "'note'"), 60},
		{"reopen", key(unknown, token), 60},
		{"resolve", key(unknown, token, "201::smallint", "''", "''", token), 60},
		{"retry", key(unknown, token, token), 60},
		{"done", key(unknown, token, "201::smallint", "''", "''", token), 60},
		{"notDone", key(unknown, token), 20},
		{"unknown", "100", 200},
		{"stats", "", many/100*2*3 + 100},
		{"sweep", "interval '30 d', 1000, null", 1000*6 + 100},
	}
}

// explain executes in a transaction that is rolled back.
func explain(t *testing.T, conn *pgx.Conn, exec func(string), q statement) plan {
	t.Helper()
	exec("begin")
	defer exec("rollback")
	args := ""
	if q.args != "" {
		args = "(" + q.args + ")"
	}
	var out []byte
	err := conn.QueryRow(t.Context(), "explain (analyze, buffers, timing off, format json) execute p_"+q.statement+args,
		pgx.QueryExecModeSimpleProtocol).Scan(&out)
	require.NoError(t, err, q.statement)
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(out, &plans))
	return plans[0].Plan
}
