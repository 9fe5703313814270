package claim

import (
	"github.com/headrace/headrace/record"
)

type state uint8

const (
	inLine  state = iota
	running       // in a batch, occupies its lane
	waiting       // in a batch: a back-off of the stack or a hold; occupies nothing
	resting       // given back, waits out its back-off in line
	settled
	dropped // its claim is ending
)

// delivery is a seat's place in a batch.
type delivery struct {
	rec      *record.Record
	batch    *Batch
	state    state
	resumed  bool // it runs again: in the line's room, without a lane
	reported bool // by Overdue
}

// Batch is what one message carries.
type Batch struct {
	// Records are in offset order, at least one.
	Records []*record.Record

	line    *Line
	seats   []*seat
	bytes   int64 // of their entries
	running int   // for the first time: the lane is free at 0
	open    int   // neither settled nor given back
}

// build makes the records, in three allocations however many they are: a retained record then pins only those of its
// own batch.
func (b *Batch) build() {
	slab := make([]record.Record, len(b.seats))
	headers := make([]record.Header, 0, b.headers())
	b.Records = make([]*record.Record, len(b.seats))
	for i, s := range b.seats {
		headers = b.fill(&slab[i], s, headers)
		b.Records[i] = &slab[i]
		s.delivery = delivery{rec: &slab[i], batch: b, state: running}
	}
	record.BeginAll(b.Records)
}

func (b *Batch) headers() (n int) {
	for _, s := range b.seats {
		n += len(s.entry.rec.Headers)
	}
	return n
}

func (b *Batch) fill(r *record.Record, s *seat, headers []record.Header) []record.Header {
	raw, c := s.entry.rec, b.line.claim
	r.Topic, r.Partition, r.Offset, r.TopicID = c.Topic, c.Partition, raw.Offset, c.TopicID
	r.Follows, r.LeaderEpoch, r.Timestamp = s.entry.follows, raw.LeaderEpoch, raw.Timestamp
	r.Key, r.Value, r.Seat = raw.Key, raw.Value, s
	r.Replay = b.line.cfg.Replay
	first := len(headers)
	for _, h := range raw.Headers {
		headers = append(headers, record.Header(h))
	}
	// The capacity ends with the record's own, so that an append to one does not write into the next.
	r.Headers = headers[first:len(headers):len(headers)]
	r.Bind(b.line, c.soft, s.domain())
	return headers
}

func (s *seat) domain() string {
	if s.dom == nil {
		return ""
	}
	return s.dom.name
}

// Open says how many of the records are neither settled nor given back.
func (b *Batch) Open() int {
	b.line.claim.mu.Lock()
	defer b.line.claim.mu.Unlock()
	return b.open
}
