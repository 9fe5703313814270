package dedup

import (
	"fmt"
	"strconv"
	"time"
)

// Namespaces of the advisory locks: two-number keys, the second is the consumer_id.
const (
	routeLock = 0x68725f72 // "hr_r"
	sweepLock = 0x68725f73 // "hr_s"
)

// The states of an inbox row: 0 effected, 1 skipped, 2 dead, 3 moved: the record died under this identity, its place, and
// was dealt with under another one, which has the row that counts.
//
// Arrays travel as text: one small argument, which works in each of pgx's exec modes and through a pooler that keeps no
// prepared statements. The ids are sorted by the caller, so that two groups insert what they share in one order.
const insertSQL = `insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates)
select $1::int, u.id, u.vh, u.co
from unnest($2::text::uuid[], $3::text::bigint[], $4::text::bigint[]) u(id, vh, co)
on conflict do nothing`

// answersSQL owns the inbox's answer for each record; its numbers are those of Answer, null for one that has no row. The
// scalar subquery keeps the plan at one index look-up a record, also where it was made on an empty table, and the offset
// keeps the subquery from being asked twice.
//
// Own comes before the hash: the same coordinates are this very record, whatever hashed it then.
const answersSQL = `select n, a from (select u.n::int n, (
	select case
		when i.xmin = pg_current_xact_id_if_assigned()::xid then 0
		when u.co in (i.coordinates, i.original) then case i.state when 0 then 1 when 1 then 2 when 3 then 3 else 5 end
		when i.value_hash <> u.vh then 4
		when i.state = 2 and u.rp then 6
		else 3 end
	from headrace.inbox i where i.consumer_id = $1::int and i.message_id = u.id) a
from unnest($2::text::uuid[], $3::text::bigint[], $4::text::bigint[], $5::text::boolean[])
	with ordinality u(id, vh, co, rp, n) offset 0) answers`

// answerSQL gives the answers that are not fresh. A group asks it only when the insert wrote fewer rows than it was given,
// and in a statement of its own: what another transaction committed while the insert waited for it is visible to a new
// snapshot alone. 9: the row that was in the insert's way is gone.
const answerSQL = `select n, coalesce(a, 9) from (` + answersSQL + `) given where a is distinct from 0`

// seenSQL is asked before any row is written: what has no row is fresh.
const seenSQL = answersSQL + ` where a is not null`

const verdictsSQL = `select message_id::text, coalesce(reason, ''), coalesce(error, '') from headrace.inbox
where consumer_id = $1::int and message_id = any($2::text::uuid[]) and state = 2`

const takeOverSQL = `update headrace.inbox set state = 0, original = coalesce(original, coordinates), coordinates = $3::bigint,
	created_at = now(), reason = null, error = null
where consumer_id = $1::int and message_id = $2::text::uuid and state = 2 and coordinates <> $3::bigint`

const movedSQL = `update headrace.inbox set state = 3, created_at = now(), reason = null, error = null
where consumer_id = $1::int and message_id = any($2::text::uuid[]) and state = 2`

const takeBackSQL = `delete from headrace.inbox where consumer_id = $1::int and message_id = any($2::text::uuid[])`

// escapedSQL takes back what a transaction left that its handler has ended: the rows of these records, if they are there,
// but not what another delivery has made of their identities. A row that a replay took over is dead again.
const escapedSQL = `with mine as (
	select u.id, u.co from unnest($2::text::uuid[], $3::text::bigint[]) u(id, co)
), dead as (
	update headrace.inbox i set state = 2, coordinates = i.original, original = null from mine
	where i.consumer_id = $1::int and i.message_id = mine.id and i.coordinates = mine.co and i.original is not null
)
delete from headrace.inbox i using mine
where i.consumer_id = $1::int and i.message_id = mine.id and i.coordinates = mine.co and i.original is null and i.state <> 2`

const skipSQL = `update headrace.inbox set state = 1 where consumer_id = $1::int and message_id = any($2::text::uuid[])`

const busySQL = `select headrace.inbox_busy($1::int, $2::text::uuid[], $3::int)::text`

const burySQL = `insert into headrace.inbox (consumer_id, message_id, state, value_hash, coordinates, reason, error)
select $1::int, u.id, 2, u.vh, u.co, u.reason, u.error
from unnest($2::text::uuid[], $3::text::bigint[], $4::text::bigint[], $5::text[], $6::text[])
	u(id, vh, co, reason, error)
on conflict do nothing`

const buryAgainSQL = `update headrace.inbox set original = coalesce(original, coordinates), coordinates = $3::bigint,
	created_at = now(), reason = $4::text, error = $5::text
where consumer_id = $1::int and message_id = $2::text::uuid and state = 2`

// claimedSQL counts the deaths before this claim: starts that find another process's claim, never given up. The count goes
// on where the offset has not moved, or not beyond a record ahead that a process has died in (run one at a time, those before
// the killer took long enough for a commit); and once there are enough to make the partition suspect ($7), where it has moved
// by no more than may have been in flight ($6). Else it begins anew, with this death: whoever is killed again and again for
// another reason, a deployment that does not wait, makes headway each time. Ten tell as much as more would.
//
// The marks that stand here are of processes that have died, or have lost the claim. All marks of such a process are
// taken at once, in whatever partition: the only one names the record that has ended it, of several each might be. They
// are locked in one order, for others may take the same.
const (
	diedBefore = `case when s.off = excluded.off
			or s.holder <> excluded.holder and cardinality(s.died) >= $7::int and excluded.off between s.off and s.off + $6::bigint
			or exists (select from headrace.suspects a
				where a.consumer_id = $1::int and a.topic_id = $2::text::uuid and a.part = $3::int and a.off >= $4::bigint)
		then s.died[1:9] else '{}' end`
	claimedSQL = `with dead as (
	select distinct marked_by from headrace.suspects
	where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int and off >= $4::bigint
		and marked_by <> $5::text::uuid
), marks as (
	select consumer_id, topic_id, part, off, marked_by,
		off < $4::bigint and (consumer_id, topic_id, part) = ($1::int, $2::text::uuid, $3::int) as past
	from headrace.suspects where marked_by in (select marked_by from dead)
		or off < $4::bigint and (consumer_id, topic_id, part) = ($1::int, $2::text::uuid, $3::int)
	order by consumer_id, topic_id, part, off for update
), died as (
	update headrace.suspects s set kills = s.kills + case when m.n = 1 and not s.beside then 1 else 0 end,
		killed_by = s.marked_by, killed_at = s.marked_at, marked_by = null
	from (select *, count(*) filter (where not past) over (partition by marked_by) n from marks) m
	where not m.past and (s.consumer_id, s.topic_id, s.part, s.off, s.marked_by) = (m.consumer_id, m.topic_id, m.part, m.off, m.marked_by)
), past as (
	delete from headrace.suspects s using marks m
	where m.past and (s.consumer_id, s.topic_id, s.part, s.off) = (m.consumer_id, m.topic_id, m.part, m.off)
)
insert into headrace.claim_starts as s (consumer_id, topic_id, part, off, holder)
values ($1::int, $2::text::uuid, $3::int, $4::bigint, $5::text::uuid)
on conflict (consumer_id, topic_id, part) do update set
	died = case when s.holder <> excluded.holder then array_remove(` + diedBefore + `, s.holder) || s.holder else ` + diedBefore + ` end,
	off = excluded.off, holder = excluded.holder
returning cardinality(died)`
)

// A process that is heard of after its claims were taken over has lost them and is alive: it takes itself off the dead. The
// last time it gives up what it could not when each claim ended.
const (
	aliveSQL = `update headrace.claim_starts set died = array_remove(died, $1::text::uuid) where $1::text::uuid = any(died)`
	leaveSQL = `update headrace.claim_starts set died = array_remove(died, $1::text::uuid), holder = nullif(holder, $1::text::uuid)
where $1::text::uuid = any(died) or holder = $1::text::uuid`
)

const (
	ofReleased  = `marked_by = $4::text::uuid and (consumer_id, topic_id, part) = ($1::int, $2::text::uuid, $3::int)`
	releasedSQL = `with gone as (
	delete from headrace.suspects where killed_by is null and ` + ofReleased + `
), known as (
	update headrace.suspects set marked_by = null where killed_by is not null and ` + ofReleased + `
)
update headrace.claim_starts set holder = null
where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int and holder = $4::text::uuid`
)

// markSQL marks the record that runs next, unless it is one that has ended too many processes, or has been in one that
// died while here a handler is stuck ($8). It answers which, whether that was so recently that the other process may be
// alive, and how many deaths are left of those that make the partition suspect. A process has one mark: one that could not be
// taken off in its time goes now, whatever route and partition it is of; not while a handler is stuck, which may have a mark
// of its own.
const (
	ofOthers = `not $8::boolean and marked_by = $5::text::uuid
		and (consumer_id, topic_id, part, off) is distinct from ($1::int, $2::text::uuid, $3::int, $4::bigint)`
	markSQL = `with was as (
	select kills >= $7::int and killed_by <> $5::text::uuid as guilty, $8::boolean and killed_by <> $5::text::uuid as doubtful, killed_at
	from headrace.suspects where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int and off = $4::bigint
), gone as (
	delete from headrace.suspects where killed_by is null and ` + ofOthers + `
), known as (
	update headrace.suspects set marked_by = null where killed_by is not null and ` + ofOthers + `
), mark as (
	insert into headrace.suspects (consumer_id, topic_id, part, off, marked_by, marked_at, beside)
	select $1::int, $2::text::uuid, $3::int, $4::bigint, $5::text::uuid, now(), $8::boolean
	where not exists (select from was where guilty or doubtful)
	on conflict (consumer_id, topic_id, part, off) do update set
		marked_by = excluded.marked_by, marked_at = excluded.marked_at, beside = excluded.beside
)
select coalesce(bool_or(guilty), false), coalesce(bool_or(doubtful), false),
	coalesce(bool_or(killed_at > now() - $6::bigint * interval '1 millisecond'), false),
	coalesce((select cardinality(died) from headrace.claim_starts
		where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int), 0)
from was`
)

// unmarkSQL is of a process that has survived the record this time. What others have died of stays, for it may be survived in
// its call and not in its transaction; that this one was believed dead does not, and what another has begun meanwhile stands.
const unmarkSQL = `with gone as (
	delete from headrace.suspects
	where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int and off = $4::bigint
		and coalesce(marked_by, $5::text::uuid) = $5::text::uuid and coalesce(killed_by, $5::text::uuid) = $5::text::uuid
)
update headrace.suspects set marked_by = nullif(marked_by, $5::text::uuid),
	kills = case when killed_by = $5::text::uuid then 0 else kills end, killed_by = nullif(killed_by, $5::text::uuid)
where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int and off = $4::bigint
	and $5::text::uuid in (marked_by, killed_by)
	and (coalesce(marked_by, $5::text::uuid) <> $5::text::uuid or coalesce(killed_by, $5::text::uuid) <> $5::text::uuid)`

// missingSQL names the privileges that the role lacks for the statements here.
const missingSQL = `select coalesce(string_agg(p || ' on ' || t, ', ' order by t, p), '')
from unnest(array['headrace.inbox', 'headrace.consumers', 'headrace.claim_starts', 'headrace.suspects', 'headrace.offsets']) t,
	unnest(array['select', 'insert', 'update', 'delete']) p
where not has_table_privilege(t, p) and (p <> 'delete' or t in ('headrace.inbox', 'headrace.suspects'))`

const consumerSQL = `insert into headrace.consumers (consumer_group, route, store) values ($1, $2, $3::smallint)
on conflict (consumer_group, route) do nothing`

const consumerIDSQL = `select id, store from headrace.consumers where consumer_group = $1 and route = $2`

// knownSQL lists what an operator may have meant.
const knownSQL = `select consumer_group || '/' || route from headrace.consumers order by consumer_group, route limit 50`

// Time limits of the transaction. The insert waits this long for another transaction that inserts the same id; a
// handler's statement waits this long for a row, so that two groups in each other's way part long before the server's
// deadlock_timeout (1 s); a record that is alone, under the route's exclusive lock, has nobody to part from.
const (
	insertLockTimeout  = 100 * time.Millisecond
	handlerLockTimeout = 50 * time.Millisecond
	aloneLockTimeout   = time.Second
	// idleReserve is on top of AttemptTimeout: after it the server itself frees the rows of a process that was paused.
	idleReserve = 5 * time.Second
)

// openSQL are the statements of a route's opening trip that depend on its configuration.
type openSQL struct {
	shared, exclusive string
	together, alone   string
}

func newOpenSQL(cfg RouteConfig) openSQL {
	gate := func(lock string) string {
		return fmt.Sprintf("select %s(%d, $1::int), set_config('lock_timeout', '%s', true), "+
			"set_config('idle_in_transaction_session_timeout', '%s', true)",
			lock, routeLock, ms(insertLockTimeout), ms(cfg.AttemptTimeout+idleReserve))
	}
	patience := func(d time.Duration) string {
		return fmt.Sprintf("select set_config('lock_timeout', '%s', true), set_config('statement_timeout', '%s', true)",
			ms(d), ms(cfg.AttemptTimeout))
	}
	return openSQL{
		shared: gate("pg_advisory_xact_lock_shared"), exclusive: gate("pg_advisory_xact_lock"),
		together: patience(handlerLockTimeout), alone: patience(aloneLockTimeout),
	}
}

func ms(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms"
}

// columns builds the arrays of a statement, in the buffers of whoever owns it.
type columns struct {
	ids, hashes, coords, replays []byte
}

func (c *columns) reset() {
	c.ids, c.hashes, c.coords, c.replays = c.ids[:0], c.hashes[:0], c.coords[:0], c.replays[:0]
}

func (c *columns) add(key [16]byte, hash, coords int64, replay bool) {
	c.ids = appendUUID(separated(c.ids), key)
	c.hashes = strconv.AppendInt(separated(c.hashes), hash, 10)
	c.coords = strconv.AppendInt(separated(c.coords), coords, 10)
	c.replays = strconv.AppendBool(separated(c.replays), replay)
}

// answerArgs are the arguments of answerSQL.
func (c *columns) answerArgs(consumer int32) []any {
	return []any{consumer, array(c.ids), array(c.hashes), array(c.coords), array(c.replays)}
}

func separated(b []byte) []byte {
	if len(b) == 0 {
		return append(b, '{')
	}
	return append(b, ',')
}

// array closes the literal; "{}" for none.
func array(b []byte) string {
	if len(b) == 0 {
		return "{}"
	}
	return string(append(b, '}'))
}

func appendUUID(b []byte, u [16]byte) []byte {
	const digits = "0123456789abcdef"
	for i, x := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return b
}
