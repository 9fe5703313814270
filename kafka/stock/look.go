package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

const (
	lookupTimeout = 5 * time.Second
	// lookupMinAge is how old the answer of the look-up's client may be.
	lookupMinAge = 100 * time.Millisecond
)

// errNoIDs is a cluster that cannot tell one topic from the next of its name.
var errNoIDs = errors.New("the cluster gives topics no ids, as Kafka before 2.8 does not; records could not be told from those of a topic made anew")

func (s *Subscriber) lookUpID(ctx context.Context, topic string) (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	details, err := s.admin.ListTopicsWithInternal(ctx, topic)
	switch detail := details[topic]; {
	case err != nil:
		return uuid.Nil, err
	case errors.Is(detail.Err, kerr.UnknownTopicOrPartition):
		return uuid.Nil, kafka.ErrUnknownTopic
	case detail.Err != nil:
		return uuid.Nil, detail.Err
	case uuid.UUID(detail.ID) == uuid.Nil:
		return uuid.Nil, errNoIDs
	default:
		return uuid.UUID(detail.ID), nil
	}
}

// permanent says that another look-up will not find an id either. A topic that is not there yet may only not be known
// everywhere yet.
func permanent(err error) bool { return errors.Is(err, errNoIDs) }

// check waits until the topic is as it should be, and gives the partitions that begin later than at their committed offsets.
// It reports false when the session or the Subscriber ends before.
//
// It is the only place where an offset that is not in the log can be met: Sarama leaves the group on it, for all
// partitions, and joins again at once, for ever (42 times in 5 s), or sets the offset by itself.
func (m *member) check(sess sarama.ConsumerGroupSession) (later map[int32]int64, ok bool) {
	for n := 0; ; n++ {
		later, p, at := m.look(sess.Context(), sess.Claims()[m.topic])
		if p == nil {
			m.s.problems.solve(m.topic)
			return later, true
		}
		m.s.trouble(at, *p)
		if !m.s.wait(sess.Context(), backoff.Exponential(firstRetry, lastRetry, n)) {
			return nil, false
		}
	}
}

// look says what is wrong with the topic, nil if nothing.
func (m *member) look(ctx context.Context, partitions []int32) (later map[int32]int64, p *problem, at place) {
	whole := place{m.topic, -1}
	id, err := m.s.lookUpID(ctx, m.topic)
	if err != nil {
		return nil, &problem{kind: record.ReportPartitionError, err: err}, whole
	}
	isNew := id != m.id()
	if isNew && m.s.cfg.OnOffsetLoss == kafka.LossHold {
		return nil, &problem{kind: record.ReportTopicRecreated, err: errAnew(m.id(), id)}, whole
	}
	stands, err := m.stands(ctx, partitions)
	if err != nil {
		return nil, new(problemOf(err)), whole
	}
	if isNew {
		return m.takeOver(id, stands), nil, whole
	}
	kept, err := m.remembered(ctx, stands)
	if err != nil {
		m.s.cfg.Logger.Warn("kafka stock: partitions begin at their committed offsets, not where Begin has them; what was done is read again",
			"group", m.s.cfg.Group, "topic", m.topic, "err", err)
	}
	if p, at := m.cut(ctx, kept); p != nil {
		return nil, p, at
	}
	later = m.later(kept, stands)
	if p, at := m.inRange(kept, stands, later); p != nil {
		return nil, p, at
	}
	return later, nil, whole
}

// errOutOfRange is an offset to begin at that is not in the log.
type errOutOfRange struct{ committed, start, end int64 }

func (e *errOutOfRange) Error() string {
	return fmt.Sprintf("committed offset %d is outside the log, which holds %d to %d", e.committed, e.start, e.end)
}

// stand is where the group stands in a partition and what its log holds.
type stand struct {
	committed  int64 // -1 for none
	epoch      int32 // of the leader, as it was committed
	begin      int64 // where it begins, -1 for the start of the log
	start, end int64
}

// outOfRange compares where a partition begins with its log. One without an offset begins at the start.
func (st stand) outOfRange() error {
	if st.begin >= 0 && (st.begin < st.start || st.begin > st.end) {
		return &errOutOfRange{st.begin, st.start, st.end}
	}
	return nil
}

func (m *member) stands(ctx context.Context, partitions []int32) (map[int32]stand, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	committed, err := m.s.admin.FetchOffsetsForTopics(ctx, m.s.cfg.Group, m.topic)
	if err != nil {
		return nil, err
	}
	starts, err := listed(m.s.admin.ListStartOffsets(ctx, m.topic))
	if err != nil {
		return nil, err
	}
	ends, err := listed(m.s.admin.ListEndOffsets(ctx, m.topic))
	if err != nil {
		return nil, err
	}
	stands := make(map[int32]stand, len(partitions))
	for _, partition := range partitions {
		st := stand{committed: -1, epoch: -1, begin: -1}
		if at, ok := committed.Lookup(m.topic, partition); ok && at.Err != nil {
			return nil, at.Err
		} else if ok && at.At >= 0 {
			st.committed, st.epoch, st.begin = at.At, at.LeaderEpoch, at.At
		}
		start, _ := starts.Lookup(m.topic, partition)
		end, _ := ends.Lookup(m.topic, partition)
		st.start, st.end = start.Offset, end.Offset
		stands[partition] = st
	}
	return stands, nil
}

func listed(offsets kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	if err == nil {
		err = offsets.Error()
	}
	return offsets, err
}
