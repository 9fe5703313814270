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

// readSQL reads the first events, in order, of the topics that can be sent to, as far as they fit into $3 bytes: at least
// one. It begins with the first row each time. Ids are given before COMMIT, so a transaction that commits late has lower
// ones: whoever went on from the last id that was read would send a later event of a key before an earlier one, or never
// come back for it.
//
// No SKIP LOCKED either: it would pass over rows that another forwarder is about to delete, and send later ones first.
const readSQL = `select id, topic, key, value, headers, message_id, bytes from (
	select o.*, sum(o.bytes) over (order by o.id rows unbounded preceding) - o.bytes as ahead
	from (select * from headrace.outbox where topic <> all($1::text[]) order by id limit $2::int) o
) x where ahead < $3::bigint order by id`

const deleteSQL = `delete from headrace.outbox where id = any($1::bigint[])`

func (t table) read(ctx context.Context, without []string, limit int) ([]event, error) {
	rows, err := t.pool.Query(ctx, readSQL, without, limit, MaxBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e event, err error) {
		err = row.Scan(&e.id, &e.topic, &e.key, &e.value, &e.headers, &e.messageID, &e.bytes)
		return e, err
	})
}

func (t table) delete(ctx context.Context, ids []int64) error {
	_, err := t.pool.Exec(ctx, deleteSQL, ids)
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
