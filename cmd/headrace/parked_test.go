package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// lot is a database with parked records of billing/charge-order, and a shell that knows it.
type lot struct {
	*cli
	pool  *pgxpool.Pool
	store *parking.Store
}

func newLot(t *testing.T) *lot {
	t.Helper()
	l := &lot{cli: newCLI(t)}
	l.env[envDSN] = pgtest.DSN(t, migrations.Up)
	l.pool = pgtest.Pool(t, l.env[envDSN])
	l.store = l.route("charge-order")
	return l
}

func (l *lot) route(name string) *parking.Store {
	l.t.Helper()
	_, err := l.pool.Exec(l.t.Context(), `insert into headrace.consumers (consumer_group, route) values ('billing', $1)`, name)
	require.NoError(l.t, err)
	store, err := parking.Open(l.t.Context(), l.pool, "billing", name, parking.Policy{})
	require.NoError(l.t, err)
	return store
}

var ordersID = uuid.MustParse("5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11")

// orderAt is the order that was read at an offset of partition 1.
func orderAt(offset int64, key string) *record.Record {
	r := &record.Record{
		Topic: "orders", TopicID: ordersID, Partition: 1, Offset: offset, Follows: offset - 1, Timestamp: night, Key: []byte(key),
		Value:   []byte(`{"id":"order-` + strconv.FormatInt(offset, 10) + `"}`),
		Headers: []record.Header{{Key: record.UUIDHeader, Value: []byte("order-" + strconv.FormatInt(offset, 10))}},
	}
	_ = dedup.Identify(r, dedup.DefaultIdentity()...)
	return r
}

// park parks a record; class is "" for one that did not run.
func (l *lot) park(store *parking.Store, r *record.Record, class, message string) {
	l.t.Helper()
	e := parking.Entry{Record: r, Key: parking.KeyID(r, true)}
	if class != "" {
		e.Failed = &parking.Failure{At: night, Class: class, Attempts: 3, Message: message}
	}
	require.NoError(l.t, store.Park(l.t.Context(), []parking.Entry{e}))
}

// parkFew parks two keys of charge-order, the first with a record behind, and one of archive-order.
func (l *lot) parkFew() {
	l.t.Helper()
	l.park(l.store, orderAt(1, "c-1"), "transient", "payments: 503 Service Unavailable")
	l.park(l.store, orderAt(2, "c-1"), "", "")
	l.park(l.store, orderAt(3, "c-3"), "ambiguous", "payments: no answer")
	l.park(l.route("archive-order"), orderAt(3, "c-3"), "permanent", "archive: full")
}

// sql executes a statement that changes n rows.
func (l *lot) sql(n int, text string, args ...any) {
	l.t.Helper()
	tag, err := l.pool.Exec(l.t.Context(), text, args...)
	require.NoError(l.t, err)
	require.EqualValues(l.t, n, tag.RowsAffected())
}

// states are those of the parked records, by place and route.
func (l *lot) states() map[string]string {
	l.t.Helper()
	got := map[string]string{}
	for _, line := range lines(l.ok("parked", "ls", "--all", "--json").out) {
		var j parkedJSON
		require.NoError(l.t, json.Unmarshal([]byte(line), &j))
		got[strconv.FormatInt(j.Offset, 10)+" "+j.Route] = j.State
	}
	return got
}

func TestParkedList(t *testing.T) {
	t.Parallel()

	// It said that nothing matches, as if the route had nothing parked.
	t.Run("ARouteThatThereIsNotIsToldWithThoseThereAre", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		r := l.ok("parked", "ls", "--route", "charge-orders")
		require.Contains(t, r.err, "note: this database knows no route charge-orders: there are archive-order, charge-order\n")
		r = l.ok("parked", "ls", "--group", "billings")
		require.Contains(t, r.err, "note: this database knows no group billings: there are billing\n")
		r = l.run("parked", "ls", "--route", "charge\x00order")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "--route has a NUL in it")
		r = l.run("parked", "show", "orders\xff/1/1")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "is no UTF-8")
	})

	t.Run("AKeyIsALineWithItsSum", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		r := l.ok("parked", "ls", "--route", "charge-order")
		out := lines(varying.ReplaceAllString(r.out, "<time>"))
		require.Equal(t, []string{
			"RECORD      ROUTE                 STATE    ROUND  DUE                   SINCE                 BEHIND  KEY  ERROR",
			"orders/1/1  billing/charge-order  waiting      1  <time>  <time>       1  c-1  transient: payments: 503 Service Unavailable",
			"orders/1/3  billing/charge-order  waiting      1  <time>  <time>          c-3  ambiguous: payments: no answer",
			"billing/charge-order: 3 records in 2 keys (2 waiting), the oldest since <time>, the next due <time>",
		}, out)
		require.Empty(t, r.err)
		require.Len(t, lines(l.ok("parked", "ls").out), 1+3+2)
		require.Contains(t, l.ok("parked", "ls", "--limit", "1").err, "the first 1 are shown")
	})

	t.Run("FiltersLeaveWhatTheySay", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		l.sql(1, `update headrace.parked_keys set due = 'infinity' where key_id = $1 and consumer_id = 1`, parking.KeyID(orderAt(3, "c-3"), true))
		for args, want := range map[string]string{
			"":                              "1 3 3",
			"--all":                         "1 2 3 3",
			"--key c-1 --all":               "1 2",
			"--key c-":                      "",
			"--at orders/1/2":               "",
			"--at orders/1/2 --all":         "2",
			"--at other/1/3":                "",
			"--reason ambiguous,permanent":  "3 3",
			"--state held":                  "3",
			"--state behind --all":          "2",
			"--group billing":               "1 3 3",
			"--group other":                 "",
			"--route archive-order":         "3",
			"--since 1h":                    "1 3 3",
			"--until 1h":                    "",
			"--since 2026-11-01 --until 1m": "",
		} {
			var got []string
			for _, line := range lines(l.ok(append([]string{"parked", "ls", "--json"}, strings.Fields(args)...)...).out) {
				var j parkedJSON
				require.NoError(t, json.Unmarshal([]byte(line), &j), args)
				got = append(got, strconv.FormatInt(j.Offset, 10))
			}
			require.Equal(t, want, strings.Join(got, " "), args)
		}
	})

	t.Run("NothingIsASuccessOnTheSide", func(t *testing.T) {
		t.Parallel()
		r := newLot(t).ok("parked", "ls")
		require.Empty(t, r.out)
		require.Equal(t, "nothing that is parked matches\n", r.err)
	})

	t.Run("WrongUseIsTold", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		for args, want := range map[string]string{
			"ls --state odd":                      `--state "odd" is not known`,
			"ls --reason odd":                     `--reason "odd" is not known`,
			"ls --at 3":                           `"3" is no record`,
			"ls --since 2h --until 3h":            "is not before",
			"ls --limit -1":                       "is negative",
			"show":                                "", // one of none
			"show a/1/1 b/1/1":                    "unexpected argument",
			"show orders/1/1 --raw --json":        "exclude each other",
			"retry 3":                             `"3" is no record`,
			"dead orders/1/1":                     "there is no terminal to ask on",
			"retry --key c --brokers 127.0.0.1:1": "unknown flag",
			"dead --why x --yes --since 2h --until 3h ": "is not before",
		} {
			r := l.run(append([]string{"parked"}, strings.Fields(args)...)...)
			if want == "" {
				require.Equal(t, exitFailed, r.code, args)
				continue
			}
			require.Equal(t, exitUsage, r.code, args)
			require.Contains(t, r.err, want, args)
		}
	})

	t.Run("ADatabaseWithoutTheTablesIsTold", func(t *testing.T) {
		t.Parallel()
		r := newCLI(t, envDSN+"="+pgtest.DSN(t)).run("parked", "ls")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "headrace migrate up")
	})
}

func TestParkedShow(t *testing.T) {
	t.Parallel()

	t.Run("RecordIsShownWholeWithItsRounds", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		require.Equal(t, `
record        orders/1/1
  timestamp   2026-11-30T03:14:00.000Z
id            order-1
group         billing
route         charge-order
state         waiting
  means       it is tried again when it is due
parked        <now>
due           <now>
round         1

rounds (1)
  2026-11-30T03:14:00.000Z  transient after 3 attempts: payments: 503 Service Unavailable

headers (1)
  _watermill_message_uuid: order-1

key (3 bytes)
  c-1

value (16 bytes)
  {"id":"order-1"}
`, "\n"+withoutNow(l.ok("parked", "show", "orders/1/1").out))
		require.JSONEq(t, `{"id":"order-2"}`, l.ok("parked", "show", "--raw", "orders/1/2").out)
		var j parkedWholeJSON
		require.NoError(t, json.Unmarshal([]byte(l.ok("parked", "show", "--json", "--key", "c-3", "--route", "archive-order").out), &j))
		require.Equal(t, []any{"permanent", 3, "archive: full"}, []any{j.History[0].Class, j.History[0].Attempts, j.History[0].Error})
	})

	t.Run("TwoRoutesAreNamed", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		r := l.run("parked", "show", "orders/1/3")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "--route")
	})

	t.Run("ARowThatCannotBeReadIsShownForWhatItIs", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		l.sql(1, `update headrace.parked_records set envelope = '\xff00' where off = 1`)
		at := ordersID.String() + "/1/1"
		require.Contains(t, l.ok("parked", "show", "--json", at).out, `"unreadable":"not an envelope of a parked record`)
		require.Contains(t, l.ok("parked", "show", at).out, "unreadable    not an envelope")
		require.Contains(t, l.ok("parked", "ls").out, "[not an envelope of a parked record: it is of version 255")
		r := l.run("parked", "dead", at, "--yes")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "not an envelope")
	})
}

// withoutNow leaves out the times of this day.
func withoutNow(out string) string {
	all := strings.Split(out, "\n")
	for i, line := range all {
		if strings.HasPrefix(line, "parked ") || strings.HasPrefix(line, "due ") {
			all[i] = varying.ReplaceAllString(line, "<now>")
		}
	}
	return strings.Join(all, "\n")
}

// What a producer or a partner wrote cannot take over the operator's terminal, and no secret is printed.
func TestParked_HostileTextsAreEscapedAndSecretsLeftOut(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\u202e\nfake  line\x9b31m"
	l := newLot(t)
	r := orderAt(1, evil)
	r.Topic, r.Value, r.Identity.ID = "or"+evil+"ders", []byte(evil), evil
	r.Headers = append(r.Headers, record.Header{Key: "h" + evil, Value: []byte(evil)}, record.Header{Key: "Authorization", Value: []byte("Bearer hunter2-hunter2")})
	l.park(l.store, r, "transient", evil+" postgres://app:hunter2-a@db/x")
	l.terminal = true
	for _, args := range []string{"ls", "ls --json", "ls --all", "show --route charge-order", "show --json --route charge-order", "retry --dry-run", "dead --dry-run"} {
		r := l.ok(append([]string{"parked"}, strings.Fields(args)...)...)
		for _, c := range r.out + r.err {
			require.True(t, c == '\n' || unicode.IsPrint(c), "%s: %q in %q", args, c, r.out)
		}
		require.NotContains(t, r.out, "\nfake", args)
		require.NotContains(t, r.out+r.err, "hunter2", args)
	}
}

func TestParkedRetry(t *testing.T) {
	t.Parallel()

	t.Run("OneIsDueAtOnceAndManyWantAYes", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		require.Contains(t, l.ok("parked", "retry", "--dry-run").out, "would make 3 keys due")
		require.NotContains(t, l.states(), "due")
		require.Equal(t, "due now: 1 key\n", l.ok("parked", "retry", "orders/1/2").out)
		require.Equal(t, map[string]string{"1 charge-order": "due", "2 charge-order": "behind", "3 charge-order": "waiting", "3 archive-order": "waiting"}, l.states())

		r := l.run("parked", "retry", "--reason", "ambiguous,permanent")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "2 keys match, with 2 records")
		require.Equal(t, "due now: 2 keys\n", l.ok("parked", "retry", "--reason", "ambiguous,permanent", "--yes").out)
		require.Equal(t, map[string]string{"1 charge-order": "due", "2 charge-order": "behind", "3 charge-order": "due", "3 archive-order": "due"}, l.states())
	})

	t.Run("HeldOnesRunAndRunningOnesAreLeft", func(t *testing.T) {
		t.Parallel()
		l := newLot(t)
		l.parkFew()
		l.sql(3, `update headrace.parked_keys set due = 'infinity'`)
		l.sql(1, `update headrace.parked_keys set due = now() + interval '1 hour', token = 7 where consumer_id = 2`)
		require.Equal(t, "held running", l.states()["3 charge-order"]+" "+l.states()["3 archive-order"])
		r := l.ok("parked", "retry", "--yes")
		require.Equal(t, "due now: 2 keys\nleft: 1 key, which somebody works on, or which are parked no more\n", r.out)
		require.Equal(t, "due running", l.states()["3 charge-order"]+" "+l.states()["3 archive-order"])
	})

	t.Run("WhatIsNotThereIsAFailure", func(t *testing.T) {
		t.Parallel()
		r := newLot(t).run("parked", "retry", "orders/1/1")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "no such record is parked")
	})
}

// rows are the dead rows of the inbox: reason and error.
func (l *lot) rows() (all []string) {
	l.t.Helper()
	rows, err := l.pool.Query(l.t.Context(), `select state || ' ' || coalesce(reason, '') || ' ' || coalesce(error, '') from headrace.inbox order by 1`)
	require.NoError(l.t, err)
	for rows.Next() {
		var s string
		require.NoError(l.t, rows.Scan(&s))
		all = append(all, s)
	}
	require.NoError(l.t, rows.Err())
	return all
}

// Whatever step of it was the last, the command can be run again, and no record leaves the table by it.
func TestParkedDead_WritesTheVerdictThenMakesItDue(t *testing.T) {
	t.Parallel()
	l := newLot(t)
	l.parkFew()
	require.Contains(t, l.ok("parked", "dead", "orders/1/1", "--dry-run").out, "would be dead: 1 record")
	require.Empty(t, l.rows())

	r := l.ok("parked", "dead", "orders/1/1", "--why", "INC-4711 password=hunter22", "--yes")
	require.Contains(t, r.out, "dead: 1 record")
	require.Equal(t, []string{"2 manual INC-4711 password=***"}, l.rows())
	require.Equal(t, map[string]string{"1 charge-order": "due", "2 charge-order": "behind", "3 charge-order": "waiting", "3 archive-order": "waiting"}, l.states())

	t.Log("the command ended between the two steps")
	l.sql(1, `update headrace.parked_keys set due = now() + interval '1 hour' where key_id = $1`, parking.KeyID(orderAt(1, "c-1"), true))
	l.ok("parked", "dead", "orders/1/1", "--yes")
	require.Equal(t, []string{"2 manual INC-4711 password=***"}, l.rows(), "what was said first stands")
	require.Equal(t, "due", l.states()["1 charge-order"])

	t.Log("a record behind others is dead in its turn")
	l.sql(1, `update headrace.parked_keys set due = now() + interval '1 hour' where key_id = $1`, parking.KeyID(orderAt(1, "c-1"), true))
	l.ok("parked", "dead", "orders/1/2", "--yes")
	require.Len(t, l.rows(), 2)
	require.Equal(t, "waiting", l.states()["1 charge-order"])

	t.Log("what has had its effect is not dead")
	l.sql(1, `insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates) values (1, $1, 0, $2)`,
		orderAt(3, "c-3").Identity.Key, orderAt(3, "c-3").Identity.Coordinates)
	r = l.run("parked", "dead", "--key", "c-3", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "failed  orders/1/3: the route has dealt with it")
	require.Contains(t, r.out, "dead: 1 record", "of the other route")
	require.Len(t, l.states(), 4, "the consumer alone takes records out")
}

// A handler that has the record in hand decides.
func TestParkedDead_WaitsForWhoeverHasTheRecord(t *testing.T) {
	t.Parallel()
	l := newLot(t)
	r := orderAt(1, "c-1")
	l.park(l.store, r, "transient", "no")
	tx, err := l.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates) values (1, $1, 0, $2)`, r.Identity.Key, r.Identity.Coordinates)
	require.NoError(t, err)
	done := make(chan result, 1)
	go func() { done <- l.run("parked", "dead", "orders/1/1", "--yes") }()
	require.Eventually(t, func() bool {
		var waits int
		err := l.pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where wait_event = 'transactionid' and datname = current_database()`).Scan(&waits)
		return err == nil && waits > 0
	}, patience, 5*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	got := <-done
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "the route has dealt with it")
}

// Whoever takes the wrong command is given the right one.
func TestBury_OfAParkedRecordNamesTheOtherCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.known()
	w.produce("orders", 1, night, []byte("c-1"), []byte(`{}`))
	at := dlq.Coordinates{Topic: "orders", Partition: 1}
	r, err := dlq.ReadAt(t.Context(), kafka.ClientConfig{Brokers: w.brokers}, at)
	require.NoError(t, err)
	_ = dedup.Identify(r)
	store, err := parking.Open(t.Context(), w.pool, "billing", "charge-order", parking.Policy{})
	require.NoError(t, err)
	require.NoError(t, store.Park(t.Context(), []parking.Entry{{Record: r, Key: parking.KeyID(r, true), Failed: &parking.Failure{}}}))
	got := w.sayDead("--at", at.String(), "--yes")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "nothing was changed: orders/1/0 is parked")
	require.Contains(t, got.err, "headrace parked dead orders/1/0 --group billing --route charge-order")
}

// parks is charge-order with parking: an order that is down waits for an hour.
func (w *world) parks(onDead parking.OnDead) consumer.AnyRoute {
	route := w.route("charge-order")
	route.Attempts = 1
	route.Park = &parking.Policy{Base: time.Hour, OnDead: onDead}
	return route
}

// parkThree sends three orders of one key, of which the first is down: so all are parked.
func (w *world) parkThree(first string) {
	w.t.Helper()
	w.keyed(order{first, "down"}, order{first + "-b", "good"}, order{first + "-c", "good"})
	require.Equal(w.t, map[record.Outcome]int{record.Parked: 3}, w.outcomes(3))
}

// A partner that is back need not be waited for, and what never works leaves the way of its key, with everything that is
// known of it.
func TestParked_AnOperatorDecidesAndTheConsumerCarriesItOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startWith(w.parks(parking.Release))

	w.parkThree("order-1")
	w.healthy.Store(true)
	require.Equal(t, "due now: 1 key\n", w.ok("parked", "retry", "--key", "c-7").out)
	require.Equal(t, map[record.Outcome]int{record.Effected: 3}, w.outcomes(3))
	w.requireEffects(3)
	w.nothingParked()

	w.healthy.Store(false)
	w.parkThree("order-2")
	w.ok("parked", "dead", "orders/1/3", "--why", "INC-4711", "--yes")
	require.Equal(t, map[record.Outcome]int{record.Dead: 1, record.Effected: 2}, w.outcomes(3))
	w.requireEffects(5)
	w.nothingParked()
	letter := w.ok("dlq", "show", "--topic", "orders.dlq", "--at", "orders/1/3", "--state").out
	for _, line := range []string{"reason        manual", "error         INC-4711", "state         dead", "\nrounds before\n", "transient after 1 attempts: payments: 503 Service Unavailable"} {
		require.Contains(t, letter, line)
	}

	t.Log("with nobody to carry it out the verdict waits")
	w.parkThree("order-3")
	stop()
	w.ok("parked", "dead", "orders/1/6", "--yes")
	require.Contains(t, w.ok("parked", "ls").out, " due ")
	w.startWith(w.parks(parking.Hold))
	require.Equal(t, map[record.Outcome]int{record.Dead: 1}, w.outcomes(1))

	t.Log("where a dead head holds its key, what is behind it waits for another word")
	require.Eventually(t, func() bool { return strings.Contains(w.ok("parked", "ls").out, " held ") }, patience, 5*time.Millisecond)
	require.Empty(t, w.settled)
	require.Contains(t, w.ok("parked", "show", "orders/1/7").out, "state         held")
	w.ok("parked", "retry", "--state", "held")
	require.Equal(t, map[record.Outcome]int{record.Effected: 2}, w.outcomes(2))
	w.requireEffects(7)
	w.nothingParked()
	effected, skipped, dead := w.states()
	require.Equal(t, []int{7, 0, 2}, []int{effected, skipped, dead})
	require.Len(t, kafkatest.ReadAll(t, w.brokers, "orders.dlq"), 2)
}

func (w *world) nothingParked() {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.ok("parked", "ls", "--json").out == "" }, patience, 5*time.Millisecond)
}
