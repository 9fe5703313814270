package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Parked is a record that waited in the database when somebody looked.
type Parked struct {
	Route     string
	Partition int32
	Offset    int64
	Envelope  []byte
}

func (p Parked) at() place { return place{p.Partition, p.Offset} }

// ReadParked reads those of a group that wait now.
func ReadParked(ctx context.Context, conn *pgx.Conn, group string) ([]Parked, error) {
	rows, err := conn.Query(ctx, `select c.route, p.part, p.off, p.envelope from headrace.parked_records p
		join headrace.consumers c on c.id = p.consumer_id where c.consumer_group = $1`, group)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Parked])
}

// parkedCopies compares what waited, whenever that was, with its records.
func (b *books) parkedCopies(seen []Parked) {
	records := map[place]*kgo.Record{}
	for _, r := range b.topic.records {
		records[placeOf(r)] = r
	}
	for _, p := range seen {
		if p.Route != b.Name {
			continue
		}
		e, err := unseal(p.Envelope)
		switch r := records[p.at()]; {
		case err != nil:
			b.complain("the envelope of %s, which was parked: %v", p.at(), err)
		case e.replay: // it stands in another topic
		case r == nil:
			b.complain("%s was parked, and is no record", p.at())
		case e.differs(r, b.topic.id) != "":
			b.complain("%s was parked with another %s", p.at(), e.differs(r, b.topic.id))
		}
	}
}

// envelope is a record as the database keeps it, version 1.
type envelope struct {
	replay    bool
	topic     string
	topicID   uuid.UUID
	at        place
	timestamp int64
	key       []byte
	value     []byte
	headers   []kgo.RecordHeader
}

func (e envelope) differs(r *kgo.Record, topicID uuid.UUID) string {
	switch {
	case e.topic != r.Topic || e.topicID != topicID || e.at != placeOf(r):
		return "place"
	case !same(e.key, r.Key):
		return "key"
	case !same(e.value, r.Value):
		return "value"
	case !slices.EqualFunc(e.headers, r.Headers, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && same(a.Value, b.Value) }):
		return "headers"
	case e.timestamp != r.Timestamp.UnixMilli():
		return "timestamp"
	}
	return ""
}

var errEnvelope = errors.New("it cannot be read")

// unseal reads: version, flags, topic, topic id, partition, offset, follows, leader epoch, timestamp; the identity's text
// and 16 + 8 + 8 + 16 bytes; key, value, headers.
func unseal(b []byte) (e envelope, err error) {
	defer func() {
		if recover() != nil { // it is shorter than it says
			err = errEnvelope
		}
	}()
	const hasKey, hasValue, isReplay = 1, 2, 4
	take := func(n uint64) []byte {
		taken := b[:n:n]
		b = b[n:]
		return taken
	}
	number := func() int64 {
		v, n := binary.Varint(b)
		take(uint64(n))
		return v
	}
	size := func() uint64 {
		v, n := binary.Uvarint(b)
		take(uint64(n))
		return v
	}
	text := func() []byte { return append([]byte{}, take(size())...) }
	if take(1)[0] != 1 {
		return e, errEnvelope
	}
	flags := take(1)[0]
	e.replay = flags&isReplay != 0
	e.topic, e.topicID = string(text()), uuid.UUID(take(16))
	e.at.partition, e.at.offset = int32(number()), number()
	number() // follows
	number() // leader epoch
	e.timestamp = number()
	text()
	take(16 + 8 + 8 + 16)
	if e.key = text(); flags&hasKey == 0 {
		e.key = nil
	}
	if e.value = text(); flags&hasValue == 0 {
		e.value = nil
	}
	for range size() {
		h := kgo.RecordHeader{Key: string(text())}
		if n := size(); n > 0 {
			h.Value = append([]byte{}, take(n-1)...)
		}
		e.headers = append(e.headers, h)
	}
	if len(b) > 0 {
		return e, errEnvelope
	}
	return e, nil
}
