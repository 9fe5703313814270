package stock

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func (st stand) log() kafka.Bounds { return kafka.Bounds{Start: st.start, End: st.end} }

// inRange compares where partitions begin with their logs. What is not there is a problem, or begins elsewhere, as
// OnOffsetLoss says: that is added to where partitions begin.
func (m *member) inRange(kept []kafka.Start, stands map[int32]stand, begin map[int32]int64) (*problem, place) {
	policy := m.s.cfg.OnOffsetLoss
	for partition, st := range stands {
		at := place{m.topic, partition}
		if l, ok := begin[partition]; ok {
			st.begin = l
		}
		err := st.outOfRange()
		if err == nil {
			continue
		}
		if policy == kafka.LossHold {
			return new(problemOf(err)), at
		}
		target := policy.Target(st.log())
		if remembered := slices.ContainsFunc(kept, func(k kafka.Start) bool { return k.Partition == partition }); remembered && target < st.begin {
			return &problem{kind: record.ReportTruncated, err: err}, at // what is there now would pass for what was done
		}
		m.tellLoss(record.ReportOffsetOutOfRange, partition, st.begin, err, policy.Lost(st.begin, st.log()))
		begin[partition] = target
	}
	return nil, place{}
}

// takeOver makes a topic that was created again the one that is read, and gives where its partitions begin if that is not
// where the group stands in it: another member may have begun it already.
func (m *member) takeOver(id uuid.UUID, stands map[int32]stand) map[int32]int64 {
	begin := map[int32]int64{}
	err := errAnew(m.id(), id)
	m.known.Store(&id)
	for partition, st := range stands {
		if m.s.cfg.OnOffsetLoss == kafka.LossNewest && st.committed <= 0 {
			begin[partition] = st.end
			m.tellLoss(record.ReportTopicRecreated, partition, st.end, err, record.LostRange(st.start, st.end))
		} else if st.outOfRange() != nil {
			begin[partition] = st.start
		}
	}
	m.tellLoss(record.ReportTopicRecreated, -1, -1, err, record.Lost{})
	return begin
}

func (m *member) tellLoss(kind string, partition int32, offset int64, err error, lost record.Lost) {
	m.s.cfg.Hooks.Report(record.Report{
		Kind: kind, Topic: m.topic, Partition: partition, Offset: offset, Err: err, Lost: lost,
		Hint: fmt.Sprintf("it goes on by itself, as OnOffsetLoss says: %s", m.s.cfg.OnOffsetLoss),
	})
}

// unread says what of a topic that was created again had not been read, for as far as Sarama has told.
func (o *owned) unread() record.Lost {
	next := o.Load().End
	if next < 0 {
		next = o.from.InitialOffset()
	}
	return record.LostRange(next, o.from.HighWaterMarkOffset())
}
