package outbox

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
)

// insertSQL writes rows in their order: whoever has the lower place gets the lower id.
const insertSQL = `insert into headrace.outbox (topic, key, value, headers, message_id, bytes, events, packed)
select u.topic, u.key, u.value, u.headers, u.message_id, u.bytes, u.events, u.packed
from unnest($1::text[], $2::bytea[], $3::bytea[], $4::bytea[], $5::text[], $6::int[], $7::int[], $8::bytea[])
	with ordinality u(topic, key, value, headers, message_id, bytes, events, packed, n)
order by u.n`

// maxInsert bounds one INSERT in bytes. A statement's arguments are in memory three times: here, in the client's
// encoding, in the server.
const maxInsert = 8 << 20

// drafts are events to be inserted. As the argument of insertSQL they are a statement by themselves, and inside the inbox
// one that waits for those of the whole group.
type drafts []draft

var _ dedup.Deferred = drafts(nil)

// newDrafts makes events of all msgs, or of none.
func newDrafts(topic string, msgs []*message.Message) (drafts, error) {
	ds := make(drafts, len(msgs))
	for i, msg := range msgs {
		d, err := newDraft(topic, msg)
		if err != nil {
			return nil, fault.Permanent(err)
		}
		ds[i] = d
	}
	return ds, nil
}

// RewriteQuery implements pgx.QueryRewriter.
func (ds drafts) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	all := make([]*draft, len(ds))
	for i := range ds {
		all[i] = &ds[i]
	}
	return insertSQL, columns(packs(all)), nil
}

// QueueAll implements dedup.Deferred.
func (ds drafts) QueueAll(b *pgx.Batch, all []dedup.Deferred) {
	together := make([]*draft, 0, len(all))
	size := 0
	for _, other := range all {
		ds := other.(drafts)
		for i := range ds {
			if size += int(ds[i].bytes); size > maxInsert && len(together) > 0 {
				b.Queue(insertSQL, columns(packs(together))...)
				together, size = together[:0], int(ds[i].bytes)
			}
			together = append(together, &ds[i])
		}
	}
	if len(together) > 0 {
		b.Queue(insertSQL, columns(packs(together))...)
	}
}

// columns are the statement's arguments.
func columns(ps []pack) []any {
	var (
		topics, ids           = make([]string, len(ps)), make([]string, len(ps))
		keys, values, headers = make([][]byte, len(ps)), make([][]byte, len(ps)), make([][]byte, len(ps))
		sizes, counts         = make([]int32, len(ps)), make([]int32, len(ps))
		packed                = make([][]byte, len(ps))
	)
	for i := range ps {
		p := &ps[i]
		topics[i], counts[i], headers[i], packed[i] = p.topic, int32(len(p.of)), []byte{}, p.packed()
		for _, d := range p.of {
			sizes[i] += d.bytes
		}
		if len(p.of) > 1 {
			continue
		}
		var e event
		_ = e.parse(p.of[0].body) // which was made a moment ago
		keys[i], values[i], headers[i], ids[i] = e.key, e.value, e.headers, e.messageID
	}
	return []any{topics, keys, values, headers, ids, sizes, counts, packed}
}
