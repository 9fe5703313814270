package parking_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/parking"
)

const (
	million = 1_000_000
	crowd   = 100_000 // followers of one key
	hotKey  = -1
)

// plan is what EXPLAIN says of one node.
type plan struct {
	Node     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Hit      int64  `json:"Shared Hit Blocks"`
	Read     int64  `json:"Shared Read Blocks"`
	Plans    []plan `json:"Plans"`
}

func (p plan) scans() (found []string) {
	if strings.HasPrefix(p.Node, "Seq Scan") {
		found = append(found, p.Relation)
	}
	for _, c := range p.Plans {
		found = append(found, c.scans()...)
	}
	return found
}

// TestPlansAtAMillion executes each statement until its plan is kept, on empty tables, fills these with a million rows
// that nobody analyses, and counts the pages that the statements then touch. That is what becomes of a consumer that
// starts on an empty database and has an outage.
func TestPlansAtAMillion(t *testing.T) {
	s, pool := newStore(t, parking.Policy{})
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	x := &explainer{t: t, conn: conn.Conn(), s: s}
	x.prepare()
	for range 8 {
		for _, q := range queries() {
			x.explain(q)
		}
	}
	x.fill()
	for _, q := range queries() {
		p := x.explain(q)
		require.Empty(t, p.scans(), q.name)
		t.Logf("%-28s %6d pages", q.name, p.Hit+p.Read)
		require.LessOrEqual(t, p.Hit+p.Read, q.pages, q.name)
	}
}

// query is a statement with its arguments, and how many pages it may touch at a million rows.
type query struct {
	name, statement, args string
	pages                 int64
}

// keys are n of the lines' from a number on; those of the million are due in an hour, but the first two thousand.
func keys(from, n int) string { return series(from, n, 7919) }

func series(from, n, step int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa((from + i) * step)
	}
	return "'{" + strings.Join(list, ",") + "}'::bigint[]"
}

// each is n times the same.
func each(value, kind string, n int) string {
	return fmt.Sprintf("array_fill(%s, array[%d])::%s[]", value, n, kind)
}

func queries() []query {
	topics := "'{" + strings.Repeat(topicID.String()+",", 499) + topicID.String() + "}'"
	hot := fmt.Sprintf("array[%d]::bigint[]", hotKey)
	first := series(1, 500, 1)
	none := "0" // the token that nobody has a lease with
	return []query{
		{"room", "room", "", 30},
		{"stats", "stats", "", 40},
		{"blocked, 500 that are not", "blocked", keys(2*million, 500), 500 * 5},
		{"blocked, 500 that are", "blocked", keys(500_000, 500), 500 * 5},
		{"claim of 500", "claim", "500, 30000, 7", 500 * 100},
		{"claim of a suspect", "suspect", "1, 30000, 7", 1100 + 40},
		{"start of a suspect", "start", "7919, 7", 60},
		{"release of a lost claim", "release", "7, false, 29000, 31000", 60},
		{"load of 500 lines", "load", keys(1, 500) + ", 1, 1000000, 500", 500 * 10},
		{"load of 500 from a crowd", "load", hot + ", 500, 1000000, 500", 500},
		{"renew of 500", "renew", keys(1, 500) + ", " + none + ", 30000", 500 * 50},
		{"alive of 500", "alive", keys(1, 500) + ", 7", 500 * 50},
		{"500 new lines", "lines", keys(3*million, 500) + ", " + each("0", "bigint", 500) + ", " + each("0", "int", 500), 500 * 50},
		{"500 new records", "records", strings.Join([]string{
			keys(3*million, 500), topics, each("1", "int", 500), first, topics, each("''::bytea", "bytea", 500), each("null::bytea", "bytea", 500),
		}, ", "), 500 * 50},
		{"a line with a crowd", "lines", hot + ", array[0]::bigint[], array[0]::int[]", 40},
		{"a record to a crowd", "records", fmt.Sprintf("%s, '{%s}', array[1], array[%d]::bigint[], '{%[2]s}', array['']::bytea[], array[null]::bytea[]",
			hot, topicID, crowd+1), 40},
		{"lock of 500", "lock", keys(1, 500) + ", " + none, 500 * 50},
		{"settle of 500", "settle", strings.Join([]string{keys(1, 500), none, topics, each("1", "int", 500), each("1", "bigint", 500)}, ", "), 500 * 50},
		{"settle of 500 from a crowd", "settle", strings.Join([]string{each("-1", "bigint", 500), none, topics, each("1", "int", 500), first}, ", "), 500 * 50},
		{"history of one", "fail", fmt.Sprintf("%s, %s, '{%s}', array[1], array[1]::bigint[], array['x']::bytea[]", keys(1, 1), none, topicID), 60},
		{"drop of 500", "drop", keys(1, 500) + ", " + none, 500 * 50},
		{"drop of a crowd's line", "drop", hot + ", " + none, 20},
		{"next of 500", "next", strings.Join([]string{
			keys(1, 500), none, each("0", "int", 500), each("0", "bigint", 500), each("true", "boolean", 500), each("1", "int", 500),
		}, ", "), 500 * 100},
		{"retry", "retry", "7919", 60},
	}
}

type explainer struct {
	t    *testing.T
	conn *pgx.Conn
	s    *parking.Store
}

func (x *explainer) exec(sql string) {
	x.t.Helper()
	_, err := x.conn.Exec(x.t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(x.t, err)
}

// prepare prepares what is explained, under the settings under which the store sends it. blocked is asked outside of a
// transaction.
func (x *explainer) prepare() {
	for name, sql := range x.s.Statements() {
		if name != "settings" {
			x.exec("prepare " + name + " as " + sql)
		}
	}
}

// explain executes in a transaction that is rolled back.
func (x *explainer) explain(q query) plan {
	x.t.Helper()
	x.exec("begin")
	defer x.exec("rollback")
	if q.statement != "blocked" && q.statement != "stats" && q.statement != "retry" {
		x.exec(x.s.Statements()["settings"])
	}
	args := fmt.Sprint(x.s.Consumer())
	if q.args != "" {
		args += ", " + q.args
	}
	var out []byte
	err := x.conn.QueryRow(x.t.Context(), "explain (analyze, buffers, timing off, format json) execute "+q.statement+"("+args+")",
		pgx.QueryExecModeSimpleProtocol).Scan(&out)
	require.NoError(x.t, err, q.name)
	var plans []struct{ Plan plan }
	require.NoError(x.t, json.Unmarshal(out, &plans))
	return plans[0].Plan
}

// fill parks a million records of their own keys and a crowd behind one.
func (x *explainer) fill() {
	c := x.s.Consumer()
	x.exec(`alter table headrace.parked_keys set (autovacuum_enabled = off);
		alter table headrace.parked_records set (autovacuum_enabled = off);`)
	x.exec(fmt.Sprintf(`insert into headrace.parked_keys (consumer_id, key_id, due, round, starts)
		select %d, g::bigint * 7919, now() + case when g <= 2000 then interval '-1 s' else interval '1 h' end, 1,
			case when g between 1001 and 2000 then 1 else 0 end from generate_series(1, %d) g;
		insert into headrace.parked_keys (consumer_id, key_id, due) values (%[1]d, %[3]d, now() + interval '1 h')`, c, million, hotKey))
	x.exec(fmt.Sprintf(`insert into headrace.parked_records (consumer_id, key_id, topic_id, part, off, message_id, envelope)
		select %d, g::bigint * 7919, '%s', 1, 1, gen_random_uuid(), repeat('x', 200)::bytea from generate_series(1, %d) g;
		insert into headrace.parked_records (consumer_id, key_id, topic_id, part, off, message_id, envelope)
		select %[1]d, %[4]d, '%[2]s', 1, g, gen_random_uuid(), repeat('x', 200)::bytea from generate_series(1, %[5]d) g;
		insert into headrace.parked_counts values (%[1]d, 0, %[6]d)`, c, topicID, million, hotKey, crowd, million+crowd))
}
