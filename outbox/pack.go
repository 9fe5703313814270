package outbox

import (
	"encoding/binary"
	"errors"
)

// A row holds many events where one transaction has published many to a topic: they share their fate, and the database has
// fewer rows to write, read, delete and vacuum.
const (
	// packBytes is how much is packed: what fits into a page together with the other columns.
	packBytes = 7500
	// packEvents is how many. The ids of the rows are so far apart, so each event of a pack has one of its own.
	packEvents = 1024
)

var errPack = errors.New("packed events are damaged")

// draft is an event that is being published.
type draft struct {
	topic string
	bytes int32
	body  []byte // what a pack has of it
}

// body is an event as a part of a pack: its size, its message's id, its key and its value, and its headers up to the end.
func (e *event) body() []byte {
	b := make([]byte, 0, len(e.messageID)+len(e.key)+len(e.value)+len(e.headers)+4*binary.MaxVarintLen32)
	b = binary.AppendUvarint(b, uint64(e.bytes))
	b = appendText(b, e.messageID)
	b = appendBytes(b, e.key, e.key == nil)
	b = appendBytes(b, e.value, e.value == nil)
	return append(b, e.headers...)
}

// parse is the opposite of body. Key, value and headers are parts of b.
func (e *event) parse(b []byte) error {
	size, n := binary.Uvarint(b)
	if n <= 0 {
		return errPack
	}
	id, b, ok := cutBytes(b[n:])
	if ok {
		e.key, b, ok = cutBytes(b)
	}
	if ok {
		e.value, b, ok = cutBytes(b)
	}
	if !ok {
		return errPack
	}
	e.messageID, e.headers, e.bytes = string(id), b, int32(size)
	return nil
}

// pack is a row that is being written.
type pack struct {
	topic string
	of    []*draft
	size  int
}

// packs are the rows of drafts, in whose order those of each topic are.
func packs(drafts []*draft) (ps []pack) {
	last := map[string]int{}
	for _, d := range drafts {
		at, ok := last[d.topic]
		if !ok || ps[at].size+len(d.body) > packBytes || len(ps[at].of) == packEvents {
			at = len(ps)
			ps = append(ps, pack{topic: d.topic})
			last[d.topic] = at
		}
		p := &ps[at]
		p.of = append(p.of, d)
		p.size += len(d.body) + binary.MaxVarintLen16
	}
	return ps
}

// packed is the column of that name, nil for one event, which is in columns of its own.
func (p *pack) packed() []byte {
	if len(p.of) == 1 {
		return nil
	}
	b := make([]byte, 0, p.size)
	for i := range p.of {
		b = appendBytes(b, p.of[i].body, false)
	}
	return b
}

// unpack gives r its n events.
func (r *row) unpack(n int, packed []byte) error {
	r.events = make([]event, n)
	for i := range r.events {
		body, rest, ok := cutBytes(packed)
		if !ok {
			return errPack
		}
		e := &r.events[i]
		e.id, e.topic, e.of = r.id+int64(i), r.topic, r
		if err := e.parse(body); err != nil {
			return err
		}
		packed = rest
	}
	if len(packed) > 0 {
		return errPack
	}
	return nil
}
