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

// check waits until the topic is as it should be, and reports false when the session or the Subscriber ends before.
//
// It is the only place where an offset that is not in the log can be met: Sarama leaves the group on it, for all
// partitions, and joins again at once, for ever (42 times in 5 s), or sets the offset by itself.
func (m *member) check(sess sarama.ConsumerGroupSession) bool {
	for n := 0; ; n++ {
		p, at := m.look(sess.Context(), sess.Claims()[m.topic])
		if p == nil {
			m.s.problems.solve(m.topic)
			return true
		}
		m.s.trouble(at, *p)
		if !m.s.wait(sess.Context(), backoff.Exponential(firstRetry, lastRetry, n)) {
			return false
		}
	}
}

// look says what is wrong with the topic, nil if nothing.
func (m *member) look(ctx context.Context, partitions []int32) (*problem, place) {
	whole := place{m.topic, -1}
	id, err := m.s.lookUpID(ctx, m.topic)
	if err != nil {
		return &problem{kind: record.ReportPartitionError, err: err}, whole
	}
	if id != m.id {
		return &problem{kind: record.ReportTopicRecreated, err: errAnew(m.id, id)}, whole
	}
	for _, partition := range partitions {
		if err := m.outOfRange(ctx, partition); err != nil {
			return new(problemOf(err)), place{m.topic, partition}
		}
	}
	return nil, whole
}

// errOutOfRange is a committed offset that is not in the log.
type errOutOfRange struct{ committed, start, end int64 }

func (e *errOutOfRange) Error() string {
	return fmt.Sprintf("committed offset %d is outside the log, which holds %d to %d", e.committed, e.start, e.end)
}

// outOfRange compares the committed offset of a partition with its log. A partition without one begins at the start.
func (m *member) outOfRange(ctx context.Context, partition int32) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	committed, err := m.s.admin.FetchOffsetsForTopics(ctx, m.s.cfg.Group, m.topic)
	if err != nil {
		return err
	}
	at, ok := committed.Lookup(m.topic, partition)
	if !ok || at.At < 0 {
		return at.Err
	}
	starts, err := listed(m.s.admin.ListStartOffsets(ctx, m.topic))
	if err != nil {
		return err
	}
	ends, err := listed(m.s.admin.ListEndOffsets(ctx, m.topic))
	if err != nil {
		return err
	}
	start, _ := starts.Lookup(m.topic, partition)
	end, _ := ends.Lookup(m.topic, partition)
	if at.At < start.Offset || at.At > end.Offset {
		return &errOutOfRange{at.At, start.Offset, end.Offset}
	}
	return nil
}

func listed(offsets kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	if err == nil {
		err = offsets.Error()
	}
	return offsets, err
}
