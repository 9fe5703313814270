package outbox_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/outbox"
)

// many fill four times as many pages as a look at the size reads.
const many = 200_000

// plan is what EXPLAIN says of one node.
type plan struct {
	Node     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Hit      int64  `json:"Shared Hit Blocks"`
	Read     int64  `json:"Shared Read Blocks"`
	Plans    []plan `json:"Plans"`
}

func (p plan) nodes() (found []string) {
	found = []string{p.Node + " " + p.Relation}
	for _, c := range p.Plans {
		found = append(found, c.nodes()...)
	}
	return found
}

// Many events, each in a row of its own, come into a table that was empty when the plans of its statements were made,
// and that nobody analyses: that is an outage of the brokers. What is read, deleted and counted is a part of it, and the
// rest drains.
func TestForwarderWithManyWaiting(t *testing.T) {
	t.Parallel()
	b := newBed(t, kfake.SeedTopics(4, "t"))
	c, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer c.Release()
	x := explainer{t, c.Conn()}
	x.exec("alter table headrace.outbox set (autovacuum_enabled = off)")
	for name, sql := range outbox.Statements() {
		x.exec("prepare " + name + " as " + sql)
	}
	queries := map[string]struct {
		args  string
		pages int64
	}{
		"read":   {"'{}', 2000, 2000, 1000000", 150},
		"around": {"'{t}', 2000, 2000, 1000000", 200}, // a topic behind another's backlog
		"delete": {ids(2000), 2000 * 3},
		"size":   {fmt.Sprint(outbox.SizePages), outbox.SizePages * 3 / 2},
		"topics": {fmt.Sprint(outbox.SizePages) + ", 2000", outbox.SizePages * 3 / 2},
		"split":  {"1, '{1}', '{a}', '{a}', '{a}', '{a}', '{1}'", 20},
	}
	for range 8 { // then the plan is kept
		for name, q := range queries {
			x.explain(name, q.args)
		}
	}
	x.exec(fmt.Sprintf(`insert into headrace.outbox (topic, key, value, message_id, bytes)
		select 't', convert_to('k' || g %% 100, 'UTF8'), convert_to(lpad((g / 100)::text, 200, '0'), 'UTF8'), 'k' || g %% 100 || '-' || g / 100, 280
		from generate_series(0, %d) g`, many-1))
	x.exec(`insert into headrace.outbox (topic, key, value, message_id, bytes)
		select 'behind', convert_to('k', 'UTF8'), convert_to(lpad(g::text, 200, '0'), 'UTF8'), 'b' || g, 280 from generate_series(1, 2000) g`)
	for name, q := range queries {
		p := x.explain(name, q.args)
		t.Logf("%-8s %6d pages: %v", name, p.Hit+p.Read, p.nodes())
		require.NotContains(t, strings.Join(p.nodes(), ", "), "Seq Scan outbox", name)
		require.LessOrEqual(t, p.Hit+p.Read, q.pages, name)
	}
	size, err := outbox.Size(t.Context(), b.pool)
	require.NoError(t, err)
	require.InEpsilon(t, many, size.Rows, 0.3)
	require.InEpsilon(t, 280*many, size.Bytes, 0.3)
	topics, err := outbox.Topics(t.Context(), b.pool)
	require.NoError(t, err)
	require.Len(t, topics, 2)
	require.Equal(t, "behind", topics[0].Topic)
	require.InEpsilon(t, 2000, topics[0].Events, 0.5)
	require.InEpsilon(t, many, topics[1].Events, 0.3)
	require.InEpsilon(t, 280*many, topics[1].Bytes, 0.3)

	// What is sent is the same from the first to the last: so a part of it is enough.
	const sent = 20_000
	x.exec(fmt.Sprintf("delete from headrace.outbox where id > (select id from headrace.outbox order by id offset %d limit 1)", sent-1))
	b.forward(b.config())
	b.drained()
	require.Zero(t, requireInOrder(t, b.read("t"), 100, sent/100))
}

// ids are the first n of the table.
func ids(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(1 + 1024*i)
	}
	return "'{" + strings.Join(list, ",") + "}'"
}

type explainer struct {
	t    *testing.T
	conn *pgx.Conn
}

func (x explainer) exec(sql string) {
	x.t.Helper()
	_, err := x.conn.Exec(x.t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(x.t, err)
}

// explain executes in a transaction that is rolled back.
func (x explainer) explain(name, args string) plan {
	x.t.Helper()
	x.exec("begin")
	defer x.exec("rollback")
	var out []byte
	err := x.conn.QueryRow(x.t.Context(), "explain (analyze, buffers, timing off, format json) execute "+name+"("+args+")",
		pgx.QueryExecModeSimpleProtocol).Scan(&out)
	require.NoError(x.t, err, name)
	var plans []struct{ Plan plan }
	require.NoError(x.t, json.Unmarshal(out, &plans))
	return plans[0].Plan
}
