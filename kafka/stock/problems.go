package stock

import (
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// errorQuiet is how long Sarama must not have told of an error for it to be over: it tells of one that lasts about twice
// a second.
const errorQuiet = 10 * time.Second

// place is where a problem is: partition -1 for the whole topic's member.
type place struct {
	topic     string
	partition int32
}

// problem is why a partition, or a member, is not read as it should be.
type problem struct {
	kind string
	err  error
	// since is when it began, last when it was told of.
	since, last time.Time
}

func (p problem) hint() string {
	switch p.kind {
	case record.ReportOffsetOutOfRange:
		return "the committed offset is not in the log any more, or not yet; this member reads nothing of the topic until the group's offset is set by hand"
	case record.ReportTruncated:
		return "the log lost records that the offset store knows as done, and their offsets come again; this member reads nothing of the topic: see 'A log that was cut' in docs/operations.md"
	case record.ReportTopicRecreated:
		return "the topic was deleted and created again; this member reads nothing of it: check the group's offset, which should be the new topic's start, then restart"
	case record.ReportCommitFailed:
		return "what was done since the last commit may be delivered again, and finds its inbox row"
	case record.ReportGroupError:
		return "the member fell out of its consumer group and joins again; if it lasts, check permissions and the coordinator"
	}
	return "it is tried again, every 30 s at last"
}

// problems are those that stand. Each is reported once, when it begins.
type problems struct {
	mu sync.Mutex
	at map[place]*problem
}

// add notes the problem and reports whether it is new.
func (ps *problems) add(at place, p problem) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	was := ps.at[at]
	fresh := was == nil || was.kind != p.kind
	p.last = time.Now()
	if p.since = p.last; !fresh {
		p.since = was.since
	}
	ps.at[at] = &p
	return fresh
}

// solve ends those of a topic.
func (ps *problems) solve(topic string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for at := range ps.at {
		if at.topic == topic {
			delete(ps.at, at)
		}
	}
}

// settle ends those that nobody has told of for a while; what check finds stands until it is solved.
func (ps *problems) settle() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for at, p := range ps.at {
		if p.kind != record.ReportOffsetOutOfRange && p.kind != record.ReportTopicRecreated && p.kind != record.ReportTruncated && time.Since(p.last) > errorQuiet {
			delete(ps.at, at)
		}
	}
}

// kind is the standing problem's of a partition or its member, "" for none.
func (ps *problems) kind(topic string, partition int32) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, at := range []place{{topic, partition}, {topic, -1}} {
		if p := ps.at[at]; p != nil {
			return p.kind
		}
	}
	return ""
}

// err joins those that keep records from being read.
func (ps *problems) err() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var errs []*kafka.ProblemError
	for at, p := range ps.at {
		if p.kind == record.ReportCommitFailed {
			continue
		}
		errs = append(errs, &kafka.ProblemError{
			Kind: p.kind, Topic: at.topic, Partition: at.partition, Since: p.since, Err: p.err, Help: p.hint(),
		})
	}
	return kafka.JoinProblems(errs)
}

// trouble notes a problem and reports it if it is new.
func (s *Subscriber) trouble(at place, p problem) {
	if s.quitting() || !s.problems.add(at, p) {
		return
	}
	offset, lost := int64(-1), record.Lost{}
	var out *errOutOfRange
	if errors.As(p.err, &out) {
		offset = out.committed
		lost = kafka.LossHold.Lost(out.committed, kafka.Bounds{Start: out.start, End: out.end})
	}
	s.cfg.Hooks.Report(record.Report{
		Kind: p.kind, Topic: at.topic, Partition: at.partition, Offset: offset, Err: p.err, Lost: lost, Hint: p.hint(),
	})
}

// problemOf is what an operator is told of an error of Sarama's or of a look-up's.
func problemOf(err error) problem {
	p := problem{kind: record.ReportPartitionError, err: err}
	var out *errOutOfRange
	switch {
	case errors.As(err, &out), errors.Is(err, sarama.ErrOffsetOutOfRange):
		p.kind = record.ReportOffsetOutOfRange
	case isAny(err, commitErrors):
		p.kind = record.ReportCommitFailed
	}
	return p
}

// commitErrors come from commits alone as a rule: Sarama does not say what it was about.
var commitErrors = []error{
	sarama.ErrIllegalGeneration, sarama.ErrUnknownMemberId, sarama.ErrRebalanceInProgress, sarama.ErrFencedInstancedId,
	sarama.ErrOffsetMetadataTooLarge, sarama.ErrInvalidCommitOffsetSize, sarama.ErrOffsetsLoadInProgress,
	sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer, sarama.ErrGroupAuthorizationFailed,
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
