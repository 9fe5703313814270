package idempotency

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// texts are the statements for a table.
type texts struct {
	check, begin, look         string
	insert                     string // Tx
	claim, finish, free, leave string // External
	reopen, resolve, retry     string // Reconcile
	unknown, done, notDone     string // of an operator
	find                       string
	stats, sweep               string
}

// mark is a setting that is local to the transaction: one that the handler has ended does not have it.
const mark = "headrace.idempotency"

// lockSQL comes alone before the look: a statement sees what was committed before it began, and who gives the lock back has
// committed.
const lockSQL = "select pg_try_advisory_xact_lock($1::bigint), set_config('" + mark + "', $2::text, true)"

const whereKey = " where route = $1::text and method = $2::text and principal = $3::text and key = $4::text"

func textsFor(table string, timeout time.Duration) texts {
	table = quoted(table)
	ms := timeout.Milliseconds()
	deadline := fmt.Sprintf("statement_timestamp() + interval '%d ms'", 2*ms)
	update := "update " + table + " set "
	const ours = whereKey + " and token = $5::uuid"
	const open, unknown = " and status is null", " and status is null and deadline <= statement_timestamp()"
	const answer = "status = $6::smallint, header = $7::bytea, body = $8::bytea, finished_at = statement_timestamp(), deadline = null, note = null"
	return texts{
		check: "select route, method, principal, key, fingerprint, token, status, header, body, note, started_at, deadline, finished_at from " + table + " limit 0",
		// Read committed, whatever is the default elsewhere: the look after the lock needs a snapshot of its own. The time
		// limits end the session of a handler that hangs, and free its key.
		begin: fmt.Sprintf("begin isolation level read committed read write; set local statement_timeout = %d; "+
			"set local idle_in_transaction_session_timeout = %[1]d", ms),
		look: "select fingerprint, token, status, header, body, coalesce(deadline <= statement_timestamp(), false) from " + table + whereKey,
		insert: "insert into " + table + " (route, method, principal, key, fingerprint, token, status, header, body, finished_at) " +
			"select $1::text, $2::text, $3::text, $4::text, $5::bytea, $6::uuid, $7::smallint, $8::bytea, $9::bytea, statement_timestamp() " +
			"where current_setting('" + mark + "', true) = $10::text",
		claim: "insert into " + table + " (route, method, principal, key, fingerprint, token, deadline) " +
			"values ($1::text, $2::text, $3::text, $4::text, $5::bytea, $6::uuid, " + deadline + ") on conflict do nothing",
		// Not only while it is open: an UPDATE whose reply was lost is sent again. Whoever resolves a key takes its token away.
		finish: update + answer + ours,
		free:   "delete from " + table + ours + open,
		leave:  update + "deadline = statement_timestamp(), note = $6::text" + ours + open,
		// One asks what became of it, and meanwhile it is in progress; its owner may still finish.
		reopen:  update + "deadline = " + deadline + ours + unknown,
		resolve: update + "token = $9::uuid, " + answer + ours + open,
		retry:   update + "token = $6::uuid, started_at = statement_timestamp(), deadline = " + deadline + ", note = null" + ours + open,

		unknown: "select route, method, principal, key, token, started_at, deadline, coalesce(note, '') from " + table +
			" where status is null and deadline <= statement_timestamp() order by deadline limit $1::int",
		find: "select route, method, principal, key, token, status, header, body, coalesce(note, ''), started_at, deadline, finished_at, " +
			"coalesce(deadline <= statement_timestamp(), false) from " + table + " where key = $4::text and ($1::text = '' or route = $1::text) " +
			"and ($2::text = '' or method = $2::text) and ($3::text = '' or principal = $3::text) order by route, method, principal limit $5::int",
		// The token fences an owner that still runs off: its finish finds nothing. It fences an operator off, too: the key was
		// listed as unknown -> somebody else had it run again -> that run is unknown, and was done.
		done:    update + "token = $9::uuid, " + answer + ours + unknown,
		notDone: "delete from " + table + ours + unknown,
		stats: "select route, count(*) filter (where deadline > statement_timestamp()), count(*) filter (where deadline <= statement_timestamp()), " +
			"greatest(0, 1000 * extract(epoch from statement_timestamp() - min(deadline)))::bigint from " + table +
			" where status is null group by route",
		// From a floor on: what the last step has deleted stays in the index for as long as somebody may still see it.
		sweep: "with gone as (delete from " + table + " where ctid = any (array(select ctid from " + table +
			" where finished_at >= coalesce($3::timestamptz, '-infinity') and finished_at < statement_timestamp() - $1::interval " +
			"order by finished_at limit $2::int for update skip locked)) returning finished_at) select count(*), max(finished_at) from gone",
	}
}

// row is what is known of a key.
type row struct {
	fingerprint  []byte
	token        uuid.UUID
	status       *int16 // nil: not finished
	header, body []byte
	past         bool // its deadline is
}

func (k Key) args(more ...any) []any {
	return append([]any{k.Route, k.Method, k.Principal, k.Key}, more...)
}

// scanRow gives nil for no row.
func scanRow(rows pgx.Rows) (*row, error) {
	var found *row
	var r row
	_, err := pgx.ForEachRow(rows, []any{&r.fingerprint, &r.token, &r.status, &r.header, &r.body, &r.past}, func() error {
		found = &r
		return nil
	})
	return found, err
}
