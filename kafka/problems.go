package kafka

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

const (
	firstProbe = time.Second
	lastProbe  = 30 * time.Second
	// probeQuiet is how long after a probe no error must have come: errors repeat at the speed of fetches.
	probeQuiet = 5 * time.Second
)

// groupProblem is the place of a problem that concerns the whole member.
var groupProblem = tp{"", -1}

// problem is why a partition is not read.
type problem struct {
	kind string
	err  error
	help string // what to do about it, where the kind does not say it
}

func (p problem) hint() string {
	if p.help != "" {
		return p.help
	}
	switch p.kind {
	case record.ReportOffsetOutOfRange:
		return "the committed offset is not in the log any more, or not yet; the partition is held until the group's offset is set by hand"
	case record.ReportTopicRecreated:
		return "the topic was deleted and created again; the partition is held: check the group's offset, then restart"
	case record.ReportTruncated:
		return "the log lost records that the offset store knows as done, and their offsets come again: the partition is held; see 'A log that was cut' in docs/operations.md, then restart"
	case record.ReportDataLoss:
		return "the log was truncated below what was read, for example by an unclean leader election"
	}
	return "the partition is held and tried again, every 30 s at last"
}

// lasts says whether the problem is one that no probe solves: it ends with the claim.
func (p problem) lasts() bool {
	return p.kind == record.ReportTopicRecreated || p.kind == record.ReportTruncated
}

// standing is a problem that was not solved yet.
type standing struct {
	problem
	since time.Time
	wait  time.Duration
	until time.Time // held; after it a probe runs
}

// problems are those of partitions, and of the member. Each is reported once, when it begins.
type problems struct {
	mu sync.Mutex
	at map[tp]*standing
}

// add notes the problem and reports whether it is new.
func (ps *problems) add(at tp, p problem) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.at == nil {
		ps.at = make(map[tp]*standing)
	}
	st := ps.at[at]
	if st != nil && st.lasts() {
		return false // what comes after it says nothing new
	}
	if st == nil || st.kind != p.kind {
		now := time.Now()
		ps.at[at] = &standing{problem: p, since: now, wait: firstProbe, until: now.Add(firstProbe)}
		return true
	}
	// Errors of the same fetch round come in numbers: only one that a probe got makes the wait longer.
	if now := time.Now(); !now.Before(st.until) {
		st.wait = min(2*st.wait, lastProbe)
		st.until = now.Add(st.wait)
	}
	return false
}

// holds says whether the partition is not to be read now.
func (ps *problems) holds(at tp) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	st := ps.at[at]
	return st != nil && (st.lasts() || time.Now().Before(st.until))
}

// lasts says whether the partition is not to be read by this claim any more.
func (ps *problems) lasts(at tp) bool {
	_, ok := ps.lasting(at)
	return ok
}

// lasting is the standing problem that no probe solves, if there is one.
func (ps *problems) lasting(at tp) (problem, bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if st := ps.at[at]; st != nil && st.lasts() {
		return st.problem, true
	}
	return problem{}, false
}

// kind is the standing problem's, "" for none.
func (ps *problems) kind(at tp) string {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if st := ps.at[at]; st != nil {
		return st.kind
	}
	return ""
}

func (ps *problems) solve(at tp) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.at, at)
}

// settle solves the problems whose probe has brought no error.
func (ps *problems) settle() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for at, st := range ps.at {
		if at != groupProblem && !st.lasts() && time.Since(st.until) > probeQuiet {
			delete(ps.at, at)
		}
	}
}

// err joins what stands.
func (ps *problems) err() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var errs []*ProblemError
	for at, st := range ps.at {
		errs = append(errs, &ProblemError{
			Kind: st.kind, Topic: at.topic, Partition: at.partition, Since: st.since, Err: st.err, Help: st.hint(),
		})
	}
	return JoinProblems(errs)
}

func errRecreated(was, is uuid.UUID) error {
	return fmt.Errorf("topic id was %s and is %s", was, is)
}

// partitionError holds a partition whose fetch failed. o is nil for one that has no claim.
func (s *Source) partitionError(at tp, o *owned, err error) {
	var session *kgo.ErrGroupSession
	if ended(err) || errors.As(err, &session) {
		return // the latter is told by groupErrors
	}
	p := problem{kind: record.ReportPartitionError, err: err}
	var loss *kgo.ErrDataLoss
	switch {
	case errors.As(err, &loss) && o != nil && o.kept.Load():
		p.kind = record.ReportTruncated
	case errors.As(err, &loss):
		p.kind = record.ReportDataLoss
	case errors.Is(err, kerr.OffsetOutOfRange):
		p.kind = record.ReportOffsetOutOfRange
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		p.kind = record.ReportTopicRecreated
	}
	if o != nil {
		s.hold(o, p)
	} else if s.problems.add(at, p) {
		s.report(record.Report{Kind: p.kind, Topic: at.topic, Partition: at.partition, Offset: -1, Err: err, Hint: p.hint()})
	}
}

// hold stops reading a partition: it is paused at once, because its error would repeat at the speed of fetches, and
// tried again later.
func (s *Source) hold(o *owned, p problem) {
	fresh := s.problems.add(o.tp, p)
	s.flow(o)
	if !fresh {
		return
	}
	if p.kind == record.ReportOffsetOutOfRange || p.kind == record.ReportTopicRecreated {
		s.losses.add(&loss{o: o, problem: p}) // who looks at the log reports it
		return
	}
	s.report(record.Report{Kind: p.kind, Topic: o.topic, Partition: o.partition, Offset: s.position(o), Err: p.err, Hint: p.hint()})
}

// groupErrors is told when the member falls out of its group, for example because it may not read it.
type groupErrors struct{ source *Source }

var _ kgo.HookGroupManageError = groupErrors{}

// OnGroupManageError keeps what the client will retry, and ends the Source where a retry can only fail.
func (g groupErrors) OnGroupManageError(err error) {
	s := g.source
	if errors.Is(err, kerr.FencedInstanceID) {
		// Another process has our instance id. The client would try for ever to take it back.
		go s.fail(fmt.Errorf("kafka source: another process has joined consumer group %q with this one's InstanceID %q; give each process its own: %w",
			s.cfg.Group, s.cfg.InstanceID, err))
		return
	}
	p := problem{kind: record.ReportGroupError, err: err, help: s.cfg.groupHint(err)}
	if s.problems.add(groupProblem, p) {
		s.report(record.Report{
			Kind: record.ReportGroupError, Partition: -1, Offset: -1, Err: fmt.Errorf("consumer group %q: %w", s.cfg.Group, err),
			Hint: p.hint(),
		})
	}
}

// groupHint tells brokers that nobody reaches, and an id that another process has, from a group that may not be read.
func (c SourceConfig) groupHint(err error) string {
	if errors.Is(err, kerr.UnreleasedInstanceID) {
		return fmt.Sprintf("another process is in the group with this one's InstanceID %q, or ended without a word and the broker waits for its session to end: "+
			"give each process its own", c.InstanceID)
	}
	const again = "the member fell out of its consumer group and joins again; if it lasts, "
	if errors.As(err, new(*net.OpError)) {
		return again + "see that the brokers are up, and that they can be reached from here"
	}
	return again + "check that this user may Read the group, and the coordinator"
}
