package outbox

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
)

// insertSQL writes events in their order: whoever has the lower place gets the lower id.
const insertSQL = `insert into headrace.outbox (topic, key, value, headers, message_id, bytes)
select u.topic, u.key, u.value, u.headers, u.message_id, u.bytes
from unnest($1::text[], $2::bytea[], $3::bytea[], $4::bytea[], $5::text[], $6::int[])
	with ordinality u(topic, key, value, headers, message_id, bytes, n)
order by u.n`

// maxInsert bounds one INSERT in bytes. A statement's arguments are in memory three times: here, in the client's
// encoding, in the server.
const maxInsert = 8 << 20

// rows are events to be inserted. As the argument of insertSQL they are a statement by themselves, and inside the inbox
// one that waits for those of the whole group.
type rows []event

var _ dedup.Deferred = rows(nil)

// RewriteQuery implements pgx.QueryRewriter.
func (rs rows) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return insertSQL, rs.columns(), nil
}

// QueueAll implements dedup.Deferred.
func (rs rows) QueueAll(b *pgx.Batch, all []dedup.Deferred) {
	var together rows
	size := 0
	for _, d := range all {
		for _, e := range d.(rows) {
			if size += int(e.bytes); size > maxInsert && len(together) > 0 {
				b.Queue(insertSQL, together.columns()...)
				together, size = nil, int(e.bytes)
			}
			together = append(together, e)
		}
	}
	if len(together) > 0 {
		b.Queue(insertSQL, together.columns()...)
	}
}

// columns are the statement's arguments.
func (rs rows) columns() []any {
	var (
		topics, ids           = make([]string, len(rs)), make([]string, len(rs))
		keys, values, headers = make([][]byte, len(rs)), make([][]byte, len(rs)), make([][]byte, len(rs))
		sizes                 = make([]int32, len(rs))
	)
	for i := range rs {
		e := &rs[i]
		topics[i], keys[i], values[i] = e.topic, e.key, e.value
		headers[i], ids[i], sizes[i] = e.headers, e.messageID, e.bytes
	}
	return []any{topics, keys, values, headers, ids, sizes}
}

// newRows makes events of all msgs, or of none.
func newRows(topic string, msgs []*message.Message) (rows, error) {
	rs := make(rows, len(msgs))
	for i, msg := range msgs {
		e, err := newEvent(topic, msg)
		if err != nil {
			return nil, fault.Permanent(err)
		}
		rs[i] = e
	}
	return rs, nil
}
