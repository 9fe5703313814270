package schedule

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// watermark checks each commit of offsets at the moment it is sent: below what it says everything is durable already.
type watermark struct {
	run *run

	mu       sync.Mutex
	verified map[int32]int64 // up to here all has its outcome, by partition
}

func (w *watermark) check(req *kmsg.OffsetCommitRequest) {
	for _, t := range req.Topics {
		if t.Topic != w.run.topic && (t.Topic != "" || t.TopicID != w.run.topicID) {
			continue
		}
		for _, p := range t.Partitions {
			w.passes(p.Partition, p.Offset)
		}
	}
}

func (w *watermark) passes(partition int32, offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.verified[partition]
	if offset <= from {
		return
	}
	now := w.run.look(context.Background())
	for _, s := range w.run.all() {
		if s.at.partition == partition && s.at.offset >= from && s.at.offset < offset && !now.durable(s) {
			w.run.complain("watermark: offset %d of partition %d was committed, and record %s (%s) had no durable outcome", offset, partition, s.at, s.Do)
		}
	}
	w.verified[partition] = offset
}

// all are the records that are in the topic by now. One may be in a claim before its producer knows where it is.
func (r *run) all() []*sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*sent(nil), r.produced...)
}

// durable says whether the record has an outcome that stays.
func (n *now) durable(s *sent) bool {
	if len(n.letters[s.at]) > 0 || len(n.effects[s.at]) > 0 {
		return true
	}
	if n.byOffset {
		return fateOf(s.Do).end == skips // that leaves nothing to see
	}
	row, known := n.rows[n.keyOf(s)]
	return known && (row.state != deadRow || !row.is(n.coordinates(s)))
}

func (n *now) keyOf(s *sent) uuid.UUID {
	if id := s.id(); id != "" {
		return uuid.MustParse(id)
	}
	return n.place(s)
}
