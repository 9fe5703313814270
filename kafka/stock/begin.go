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

// later asks where the partitions begin that begin later than at their committed offsets, and what is wrong with their
// logs. What cannot be asked begins at the committed offset, and is read again.
func (m *member) later(ctx context.Context, stands map[int32]stand) (map[int32]int64, *problem, place) {
	if m.s.cfg.Begin == nil {
		return nil, nil, place{}
	}
	kept, err := m.remembered(ctx, stands)
	if err != nil {
		m.s.cfg.Logger.Warn("kafka stock: partitions begin at their committed offsets, not where Begin has them; what was done is read again",
			"group", m.s.cfg.Group, "topic", m.topic, "err", err)
		return nil, nil, place{}
	}
	if p, at := m.cut(ctx, kept); p != nil {
		return nil, p, at
	}
	later := make(map[int32]int64, len(kept))
	for _, k := range kept {
		if st, asked := stands[k.Partition]; asked && k.Offset > st.committed {
			later[k.Partition] = k.Offset
		}
	}
	return later, nil, place{}
}

func (m *member) remembered(ctx context.Context, stands map[int32]stand) ([]kafka.Start, error) {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	ask := make([]kafka.Start, 0, len(stands))
	for partition, st := range stands {
		ask = append(ask, kafka.Start{Topic: m.topic, TopicID: m.id, Partition: partition, Offset: st.committed, Epoch: st.epoch})
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
func (m *member) moveOn(sess sarama.ConsumerGroupSession, later map[int32]int64) {
	for partition, offset := range later {
		sess.MarkOffset(m.topic, partition, offset, "")
	}
}
