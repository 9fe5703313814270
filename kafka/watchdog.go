package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

// tendInterval is how often the watchdogs look.
const tendInterval = time.Second

// tend resumes claims that have room again and looks after what nobody tells of: stuck handlers, a silent coordinator,
// held partitions that may be probed, routes that nobody serves.
func (s *Source) tend() {
	tick := time.NewTicker(tendInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.flowing:
		case <-tick.C:
			s.watchHandlers()
			s.watchCoordinator()
			s.watchRoutes()
			s.problems.settle()
		case <-s.quit:
			return
		}
		s.flowAll()
	}
}

// watchHandlers reports records whose attempt lasts too long, and gives up when one lasts longer than MaxPollInterval.
//
// The client's heartbeats go on beside a hung handler for ever; without this nobody would ever take its partition over.
func (s *Source) watchHandlers() {
	for _, o := range s.allClaims() {
		for _, late := range o.Overdue() {
			if !late.Reported {
				s.report(late.Report(s.cfg.MaxPollInterval))
			}
			if err := late.Hung(s.cfg.MaxPollInterval); err != nil {
				go s.fail(fmt.Errorf("kafka source: %w", err))
			}
		}
	}
}

// watchRoutes reports routes whose subscription has ended and that nobody serves: their records hold the offset.
func (s *Source) watchRoutes() {
	s.mu.Lock()
	gone := s.routes.Gone(s.cfg.SessionTimeout)
	s.mu.Unlock()
	for _, r := range gone {
		s.report(r.ReportGone())
	}
}

// pulse hears whether the coordinator answers. The client itself ends the claims five seconds after the session has
// ended, and in KIP-848 groups never.
type pulse struct {
	last    atomic.Int64 // unix nanoseconds of the last answer
	joining atomic.Int32 // JoinGroup and SyncGroup requests that are out
	joined  atomic.Bool  // it was a member of its group: not before the first join is answered
}

var (
	_ kgo.HookBrokerWrite = (*pulse)(nil)
	_ kgo.HookBrokerE2E   = (*pulse)(nil)
)

func (p *pulse) beat() { p.last.Store(time.Now().UnixNano()) }

func (p *pulse) silence() time.Duration { return time.Since(time.Unix(0, p.last.Load())) }

// OnBrokerWrite notes a join that is out: its answer may take the whole RebalanceTimeout.
func (p *pulse) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if joins(key) && err == nil {
		p.joining.Add(1)
	}
}

// OnBrokerE2E notes the coordinator's answers.
func (p *pulse) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	switch ok := e2e.Err() == nil; {
	case joins(key) && e2e.WriteErr == nil:
		p.joining.Add(-1)
		if ok {
			p.beat()
		}
	case beats(key) && ok:
		p.joined.Store(true)
		// A member that heartbeats does not join: whatever became of a join whose connection died, it is not out.
		p.joining.Store(0)
		p.beat()
	}
}

func joins(key int16) bool { return key == int16(kmsg.JoinGroup) || key == int16(kmsg.SyncGroup) }

func beats(key int16) bool {
	return key == int16(kmsg.Heartbeat) || key == int16(kmsg.ConsumerGroupHeartbeat)
}

// resumption is where a claim goes on that ended because the coordinator was silent: Offset -1 if nothing was read.
type resumption struct {
	claim.Mark
	settled bool     // everything before it is: it is to be committed
	kept    bool     // as the claim's
	held    *problem // that lasts, nil if there is none
}

// watchCoordinator ends every claim when the coordinator has been silent for a session: it has given the partitions to
// somebody else, or cannot be asked. If it then answers as if nothing had been, the claims begin again where they were.
func (s *Source) watchCoordinator() {
	patience := s.cfg.SessionTimeout
	if s.pulse.joining.Load() > 0 {
		patience += s.cfg.RebalanceTimeout
	}
	// Claims that are being ended by a rebalance or a stop need no watchdog, and those that stay are not to wait for it.
	if !s.ending.tryLock() {
		return
	}
	defer s.ending.unlock()
	if s.pulse.silence() > patience {
		s.silence(s.allClaims())
	} else {
		s.revive()
	}
}

// silence ends claims that the coordinator no longer vouches for. Their partitions are paused, so that nothing is
// fetched for nobody. With Source.ending held.
//
// The poll has the first records of a partition in its hand -> its claim begins to end and drops them -> the client, whose
// position is behind them, would go on there. So where a claim goes on is asked once the poll's hand is empty. The report
// comes before that: what keeps the poll may be somebody who waits for it.
func (s *Source) silence(claims []*owned) {
	if len(claims) == 0 || s.quitting() {
		return
	}
	for _, o := range claims {
		o.silent.Store(true)
		s.flow(o)
		o.EndSoft(record.ErrLost)
	}
	s.report(record.Report{
		Kind: record.ReportCoordinatorSilent, Partition: -1, Offset: -1, Age: s.pulse.silence(),
		Hint: "the consumer group's coordinator has not answered for a session; the partitions may belong to another member by now",
	})
	s.fence.pass()
	was := make(map[tp]resumption, len(claims))
	for _, o := range claims {
		was[o.tp] = s.resumption(o)
	}
	s.endClaims(context.Background(), claims, ending{event: "lost", cause: record.ErrLost})
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, r := range was {
		s.silenced[at] = r
	}
}

// resumption is of a claim that takes nothing any more.
func (s *Source) resumption(o *owned) resumption {
	r := resumption{Mark: claim.Mark{Offset: o.Began(), Epoch: -1}, kept: o.kept.Load()}
	if m, ok := o.Watermark(); ok {
		r.Mark, r.settled = m, true
	}
	if p, ok := s.problems.lasting(o.tp); ok {
		r.held = &p
	}
	return r
}

// revive begins the claims again whose member the coordinator still knows. Those that it took away meanwhile were
// deleted from silenced by the client's callback. With Source.ending held.
func (s *Source) revive() {
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	var back []*owned
	s.mu.Lock()
	for at, r := range s.silenced {
		o := s.newOwned(at, s.ids[at.topic])
		o.paused.Store(true)
		o.kept.Store(r.kept)
		o.begun.Store(r.Offset)
		if r.held != nil {
			s.problems.add(at, *r.held) // reported before
			if r.held.kind == record.ReportTopicRecreated {
				s.losses.add(&loss{o: o, problem: *r.held, told: true})
			}
		}
		if r.settled {
			o.GoOn(r.Mark) // perhaps not committed yet, and no record may come to move it
		}
		back = append(back, o)
		if r.Offset >= 0 {
			if offsets[at.topic] == nil {
				offsets[at.topic] = make(map[int32]kgo.EpochOffset)
			}
			offsets[at.topic][at.partition] = kgo.EpochOffset{Epoch: r.Epoch, Offset: r.Offset}
		}
		delete(s.silenced, at)
	}
	if len(back) > 0 {
		s.share()
	}
	s.mu.Unlock()
	if len(back) == 0 {
		return
	}
	s.client.SetOffsets(offsets)
	for _, o := range back {
		s.tell(o.tp, "assigned")
		s.flow(o)
	}
}
