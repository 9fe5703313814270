package stock

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/internal/cut"
	"github.com/headrace/headrace/record"
)

// beginTimeout is what kafka.SourceConfig.Begin has.
const beginTimeout = 3 * time.Second

// later are the partitions that begin later than at their committed offsets.
func (m *member) later(kept []kafka.Start, stands map[int32]stand) map[int32]int64 {
	later := make(map[int32]int64, len(kept))
	for _, k := range kept {
		if st, asked := stands[k.Partition]; asked && k.Offset > st.committed {
			later[k.Partition] = k.Offset
		}
	}
	return later
}

// remembered asks where partitions begin. What cannot be asked begins at the committed offset, and is read again.
func (m *member) remembered(ctx context.Context, stands map[int32]stand) ([]kafka.Start, error) {
	if m.s.cfg.Begin == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	ask := make([]kafka.Start, 0, len(stands))
	for partition, st := range stands {
		ask = append(ask, kafka.Start{Topic: m.topic, TopicID: m.id(), Partition: partition, Offset: st.committed, Epoch: st.epoch})
	}
	return m.s.cfg.Begin(ctx, ask)
}

// cut finds a partition whose log was cut below what is remembered of it. A log that cannot be looked at is tried again:
// Sarama, which goes on at an offset whatever the log was before, would not find it.
func (m *member) cut(ctx context.Context, kept []kafka.Start) (*problem, place) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	known := make([]cut.Known, len(kept))
	for i, k := range kept {
		known[i] = cut.Known{Topic: m.topic, Partition: k.Partition, Offset: k.Offset, Epoch: k.Epoch, End: k.End}
	}
	found, err := cut.Find(ctx, m.s.admin, known)
	switch {
	case err != nil:
		return &problem{kind: record.ReportPartitionError, err: err}, place{m.topic, -1}
	case len(found) > 0:
		return &problem{kind: record.ReportTruncated, err: errors.Join(all(found)...)}, place{m.topic, found[0].Partition}
	}
	return nil, place{}
}

func all(found []*cut.Error) []error {
	errs := make([]error, len(found))
	for i, f := range found {
		errs[i] = f
	}
	return errs
}

// moveOn makes Sarama begin there: it asks for a partition's position when the session's handler has been set up. What is
// marked is also committed, so the group does not seem to lag behind what is done.
func (m *member) moveOn(sess sarama.ConsumerGroupSession, to map[int32]int64) {
	for partition, offset := range to {
		sess.MarkOffset(m.topic, partition, offset, "")  // forwards
		sess.ResetOffset(m.topic, partition, offset, "") // back
	}
}
