package parking

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// statements are the SQL of a Store. They are values, not constants, so that a test can break one and see that it is
// caught.
//
// Ids travel as text, so that each of pgx's exec modes can send them; delays travel as milliseconds and are added to the
// database's clock: nobody else's counts. statement_timestamp is stable and so an index condition, which clock_timestamp
// is not. Whatever locks several lines locks them in the order of their keys.
type statements struct {
	settings              string
	room, lines, records  string
	claim, suspect, load  string
	start, release        string
	renew, alive          string
	lock, settle, fail    string
	drop, next            string
	blocked, stats, retry string
}

// theStatements are the right ones.
func theStatements() statements {
	return statements{
		settings: settings, room: roomSQL, lines: linesSQL, records: recordsSQL,
		claim: fmt.Sprintf(claimSQL, "starts = 0", ", starts = 1", "0"), suspect: fmt.Sprintf(claimSQL, "starts > 0", "", "l.starts"),
		load: loadSQL, start: startSQL, release: releaseSQL,
		renew: renewSQL, alive: aliveSQL,
		lock: lockSQL, settle: settleSQL, fail: failSQL, drop: dropSQL, next: nextSQL,
		blocked: blockedSQL, stats: statsSQL, retry: retrySQL,
	}
}

// settings open each transaction. A process that is paused must not keep its locks. And what a connection has planned
// while the tables were empty is used when they have millions of rows: a scan or a hash of a whole table is never right
// here, every statement finds its rows by an index.
var settings = fmt.Sprintf("select set_config('lock_timeout', '%dms', true), set_config('statement_timeout', '%dms', true), "+
	"set_config('idle_in_transaction_session_timeout', '%[2]dms', true), set_config('enable_seqscan', 'off', true), "+
	"set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)",
	lockTimeout.Milliseconds(), statementTimeout.Milliseconds())

const (
	lockTimeout      = 5 * time.Second
	statementTimeout = 15 * time.Second
)

// roomSQL says how many records are parked, and for how many milliseconds the oldest head has been.
const roomSQL = `select
	coalesce((select sum(records) from headrace.parked_counts where consumer_id = $1::int), 0)::bigint,
	coalesce(1000 * extract(epoch from statement_timestamp()
		- (select min(since) from headrace.parked_keys where consumer_id = $1::int)), 0)::bigint`

// linesSQL makes the lines, or locks those that are there: it is the update, which changes nothing, that keeps a finish
// from deleting the line of a record that it cannot see yet.
const linesSQL = `insert into headrace.parked_keys as l (consumer_id, key_id, due, round)
select $1::int, u.k, statement_timestamp() + max(u.delay) * interval '1 millisecond', max(u.round)
from unnest($2::bigint[], $3::bigint[], $4::int[]) u(k, delay, round)
group by u.k order by u.k
on conflict (consumer_id, key_id) do update set key_id = l.key_id`

const recordsSQL = `with added as (
	insert into headrace.parked_records (consumer_id, key_id, topic_id, part, off, message_id, envelope, history)
	select $1::int, u.k, u.t, u.p, u.o, u.id, u.e, u.h
	from unnest($2::bigint[], $3::text::uuid[], $4::int[], $5::bigint[], $6::text::uuid[], $7::bytea[], $8::bytea[])
		u(k, t, p, o, id, e, h)
	on conflict do nothing returning 1
)
insert into headrace.parked_counts as c (consumer_id, slot, records)
select $1::int, pg_backend_pid() % 16, count(*) from added having count(*) > 0
on conflict (consumer_id, slot) do update set records = c.records + excluded.records`

// claimSQL takes lines whose time has come, or whose lease is over. What is no suspect yet has a start from here on, in
// the one update; a suspect only when it is loaded (startSQL), by whoever knows that it has been claimed: else lost
// answers would convict it.
const claimSQL = `with c as (
	select key_id, due from headrace.parked_keys
	where consumer_id = $1::int and due <= statement_timestamp() and %s
	order by due limit $2::int for update skip locked
)
update headrace.parked_keys l set due = statement_timestamp() + $3::bigint * interval '1 millisecond', token = $4::bigint%s
from c where l.consumer_id = $1::int and l.key_id = c.key_id
returning l.key_id, l.round, %s::int, (1000 * extract(epoch from statement_timestamp() - c.due))::bigint`

const startSQL = `update headrace.parked_keys set starts = least(starts + 1, 30000)
where consumer_id = $1::int and key_id = $2::bigint and token = $3::bigint`

// releaseSQL gives back what a claim has taken whose answer is lost: due when its lease is over, that is between $4 and
// $5 milliseconds from now. Which lines these are nobody knows, but they are found by that.
const releaseSQL = `update headrace.parked_keys set due = statement_timestamp(), token = 0, starts = case when $3::boolean then starts else 0 end
where consumer_id = $1::int and token = $2::bigint and due between statement_timestamp() + $4::bigint * interval '1 millisecond'
	and statement_timestamp() + $5::bigint * interval '1 millisecond'`

// loadSQL reads the first records of each line, the heads of all before the second of any, until it has enough records
// or bytes. octet_length does not read what is stored out of line.
const loadSQL = `select s.k, s.topic_id, s.part, s.off, s.envelope, s.history, (1000 * extract(epoch from s.parked_at))::bigint,
	(1000 * extract(epoch from statement_timestamp() - s.parked_at))::bigint
from (
	select u.k, u.n, r.*, sum(r.size) over w - r.size as bytes, count(*) over w as place
	from unnest($2::bigint[]) with ordinality u(k, n)
	cross join lateral (
		select topic_id, part, off, envelope, history, parked_at, octet_length(envelope) as size, row_number() over () as rank
		from (
			select * from headrace.parked_records where consumer_id = $1::int and key_id = u.k
			order by topic_id, part, off limit $3::int
		) first
	) r
	window w as (order by r.rank, u.n)
) s
where s.bytes < $4::bigint and s.place <= $5::int
order by s.n, s.rank`

const renewSQL = `with mine as (
	select key_id from headrace.parked_keys
	where consumer_id = $1::int and key_id = any($2::bigint[]) and token = $3::bigint
	order by key_id for update
)
update headrace.parked_keys l set due = statement_timestamp() + $4::bigint * interval '1 millisecond'
from mine where l.consumer_id = $1::int and l.key_id = mine.key_id
returning l.key_id`

// aliveSQL takes back the starts of leases that ran out while their holder lived.
const aliveSQL = `with theirs as (
	select key_id from headrace.parked_keys
	where consumer_id = $1::int and key_id = any($2::bigint[]) and token <> $3::bigint and starts > 0
	order by key_id for update
)
update headrace.parked_keys l set starts = l.starts - 1
from theirs where l.consumer_id = $1::int and l.key_id = theirs.key_id`

// lockSQL is the first of a finish: whoever appends to one of the lines waits from here on, or has committed, and the
// statements after it, with snapshots of their own, see what was appended.
const lockSQL = `select key_id from headrace.parked_keys
where consumer_id = $1::int and key_id = any($2::bigint[]) and token = $3::bigint
order by key_id for update`

const settleSQL = `with gone as (
	delete from headrace.parked_records r
	using unnest($2::bigint[], $4::text::uuid[], $5::int[], $6::bigint[]) u(k, t, p, o), headrace.parked_keys l
	where l.consumer_id = $1::int and l.key_id = u.k and l.token = $3::bigint
		and r.consumer_id = $1::int and r.key_id = u.k and r.topic_id = u.t and r.part = u.p and r.off = u.o
	returning 1
)
insert into headrace.parked_counts as c (consumer_id, slot, records)
select $1::int, pg_backend_pid() % 16, -count(*) from gone having count(*) > 0
on conflict (consumer_id, slot) do update set records = c.records + excluded.records`

const failSQL = `update headrace.parked_records r set history = u.h
from unnest($2::bigint[], $4::text::uuid[], $5::int[], $6::bigint[], $7::bytea[]) u(k, t, p, o, h), headrace.parked_keys l
where l.consumer_id = $1::int and l.key_id = u.k and l.token = $3::bigint
	and r.consumer_id = $1::int and r.key_id = u.k and r.topic_id = u.t and r.part = u.p and r.off = u.o`

const dropSQL = `delete from headrace.parked_keys l
where l.consumer_id = $1::int and l.key_id = any($2::bigint[]) and l.token = $3::bigint
	and (select true from headrace.parked_records r where r.consumer_id = $1::int and r.key_id = l.key_id limit 1) is null`

// nextSQL is for the lines that have records left; its numbers are those of Then.
const nextSQL = `update headrace.parked_keys l set token = 0,
	due = case u.how when 3 then 'infinity' else statement_timestamp() + u.delay * interval '1 millisecond' end,
	round = case when u.how = 1 then case when u.moved then 1 else l.round + 1 end when u.moved then 0 else l.round end,
	starts = case when u.how = 2 and not u.moved then greatest(l.starts - u.started, 0) else 0 end,
	since = coalesce((select r.parked_at from headrace.parked_records r
		where r.consumer_id = $1::int and r.key_id = l.key_id order by r.topic_id, r.part, r.off limit 1), l.since)
from unnest($2::bigint[], $4::int[], $5::bigint[], $6::boolean[], $7::int[]) u(k, how, delay, moved, started)
where l.consumer_id = $1::int and l.key_id = u.k and l.token = $3::bigint`

// blockedSQL keeps its plan at one index look-up a key, also where it was made on an empty table, by its scalar subquery.
const blockedSQL = `select (select true from headrace.parked_keys l where l.consumer_id = $1::int and l.key_id = u.k) is not null
from unnest($2::bigint[]) with ordinality u(k, n) order by u.n`

const statsSQL = `select
	coalesce((select sum(records) from headrace.parked_counts where consumer_id = $1::int), 0)::bigint,
	coalesce(1000 * extract(epoch from statement_timestamp()
		- (select min(since) from headrace.parked_keys where consumer_id = $1::int)), 0)::bigint,
	coalesce(1000 * extract(epoch from statement_timestamp()
		- (select min(due) from headrace.parked_keys where consumer_id = $1::int and due <= statement_timestamp())), 0)::bigint`

// retrySQL makes a line due, unless somebody works on it.
const retrySQL = `update headrace.parked_keys set due = statement_timestamp()
where consumer_id = $1::int and key_id = $2::bigint and (token = 0 or due <= statement_timestamp())`

// uuids is an array literal.
func uuids(ids []uuid.UUID) string {
	var b strings.Builder
	b.Grow(2 + 37*len(ids))
	b.WriteByte('{')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(id.String())
	}
	b.WriteByte('}')
	return b.String()
}

func millis(d time.Duration) int64 { return max(d.Milliseconds(), 0) }
