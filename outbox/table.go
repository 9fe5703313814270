package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// table is what a forwarder does with the database. Each statement is a transaction of its own: none is open while
// something is sent.
type table struct{ pool *pgxpool.Pool }

// readSQL reads the first rows, in order, of the topics that can be sent to: $2 at most, and only until they have $3 events
// or $4 bytes, but one. It begins with the first row each time. Ids are given before COMMIT, so a transaction that commits
// late has lower ones: whoever went on from the last id that was read would send a later event of a key before an earlier
// one, or never come back for it.
//
// No SKIP LOCKED either: it would pass over rows that another forwarder is about to delete, and send later ones first.
const (
	readSQL = `select ` + enough + `from (select * from headrace.outbox where topic <> all($1::text[]) order by id limit $2::int) o` + ofThem

	// readAroundSQL is readSQL while some topics cannot be sent to: what waits for them may be all that is in front. It goes
	// from topic to topic, and reads each one's first rows.
	readAroundSQL = `with recursive t as (
	(select topic from headrace.outbox order by topic limit 1)
	union all
	select (select o.topic from headrace.outbox o where o.topic > t.topic order by o.topic limit 1) from t where t.topic is not null
), firsts as (
	select o.* from t cross join lateral (select * from headrace.outbox o where o.topic = t.topic order by o.id limit $2::int) o
	where t.topic <> all($1::text[]) order by o.id limit $2::int
) select ` + enough + `from firsts o` + ofThem

	enough = `id, topic, key, value, headers, message_id, bytes, events, packed from (
	select o.*, sum(o.events) over w - o.events as before, sum(o.bytes) over w - o.bytes as ahead `
	ofThem = ` window w as (order by o.id rows unbounded preceding)
) x where before < $3::int and ahead < $4::int order by id`
)

// row is one of the table: an event, or a pack of them.
type row struct {
	id     int64
	topic  string
	events []event
	left   int // not confirmed yet
}

func (t table) read(ctx context.Context, without []string, limit, events int) ([]*row, error) {
	sql := readSQL
	if len(without) > 0 {
		sql = readAroundSQL
	}
	rows, err := t.pool.Query(ctx, sql, without, limit, events, maxWave)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanRow)
}

func scanRow(from pgx.CollectableRow) (*row, error) {
	var (
		r      = &row{}
		e      event
		n      int
		packed []byte
	)
	if err := from.Scan(&r.id, &r.topic, &e.key, &e.value, &e.headers, &e.messageID, &e.bytes, &n, &packed); err != nil {
		return nil, err
	}
	e.id, e.topic, e.of = r.id, r.topic, r
	if n > 1 {
		e.damaged = r.unpack(n, packed)
	}
	if n == 1 || e.damaged != nil {
		r.events = []event{e}
	}
	r.left = len(r.events)
	return r, nil
}

// deleteSQL need not be on disk when it is answered. If it is undone by a crash of the database, the events are sent again,
// and waiting for the disk, or a standby, would take from whoever waits for it with effects.
const deleteSQL = `delete from headrace.outbox where id = any($1::bigint[])`

const asyncSQL = `select set_config('synchronous_commit', 'off', true)`

func (t table) delete(ctx context.Context, ids []int64) error {
	b := &pgx.Batch{} // a transaction
	b.Queue(asyncSQL)
	b.Queue(deleteSQL, ids)
	return t.pool.SendBatch(ctx, b).Close()
}

// splitSQL puts the events of a pack in its place, if it is there: each has its id.
const splitSQL = `with gone as (delete from headrace.outbox where id = $1 and events > 1 returning topic, created_at)
insert into headrace.outbox (id, topic, key, value, headers, message_id, bytes, created_at) overriding system value
select u.id, gone.topic, u.key, u.value, u.headers, u.message_id, u.bytes, gone.created_at
from gone, unnest($2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::text[], $7::int[]) u(id, key, value, headers, message_id, bytes)`

// split takes a pack apart, so that the event of it that is in the way can be seen, and be deleted by who must.
func (t table) split(ctx context.Context, r *row) error {
	var (
		ids                   []int64
		keys, values, headers [][]byte
		messageIDs            []string
		sizes                 []int32
	)
	for i := range r.events {
		if e := &r.events[i]; !e.confirmed {
			ids, messageIDs, sizes = append(ids, e.id), append(messageIDs, e.messageID), append(sizes, e.bytes)
			keys, values, headers = append(keys, e.key), append(values, e.value), append(headers, e.headers)
		}
	}
	_, err := t.pool.Exec(ctx, splitSQL, r.id, ids, keys, values, headers, messageIDs, sizes)
	return err
}

// The clock is the database's: those of the forwarders' machines may differ. An insert, because whoever empties the table
// must not end all forwarding.
const (
	takeLeaseSQL = `insert into headrace.outbox_lease as l (holder, expires) values ($1::uuid, statement_timestamp() + $2::interval)
on conflict (one) do update set holder = excluded.holder, expires = excluded.expires
where l.holder = excluded.holder or l.expires < statement_timestamp()`
	leaveLeaseSQL = `update headrace.outbox_lease set expires = '-infinity' where holder = $1::uuid`
)

// takeLease takes or prolongs the lease, and is false while another forwarder has it.
func (t table) takeLease(ctx context.Context, me uuid.UUID, d time.Duration) (bool, error) {
	tag, err := t.pool.Exec(ctx, takeLeaseSQL, me.String(), d)
	return err == nil && tag.RowsAffected() == 1, err
}

func (t table) leaveLease(ctx context.Context, me uuid.UUID) error {
	_, err := t.pool.Exec(ctx, leaveLeaseSQL, me.String())
	return err
}
