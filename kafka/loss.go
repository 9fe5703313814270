package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

// OffsetLoss is what becomes of a partition whose next record is not in its log any more: retention or an operator has
// deleted it, the log was cut, or the topic was deleted and created again.
type OffsetLoss uint8

const (
	// LossHold reads nothing more of the partition, or of the topic that was created again, until an operator decides.
	LossHold OffsetLoss = iota
	// LossOldest goes on at the oldest record that is there.
	LossOldest
	// LossNewest goes on at the end of the log, and skips what is there.
	LossNewest
)

// String is as it is written in configurations: hold, oldest, newest.
func (l OffsetLoss) String() string {
	switch l {
	case LossHold:
		return "hold"
	case LossOldest:
		return "oldest"
	case LossNewest:
		return "newest"
	}
	return fmt.Sprintf("OffsetLoss(%d)", uint8(l))
}

// Validate refuses what is none of the three.
func (l OffsetLoss) Validate() error {
	if l > LossNewest {
		return fmt.Errorf("OnOffsetLoss is %s: it must be LossHold, LossOldest or LossNewest", l)
	}
	return nil
}

// Bounds are of a log: its first record's offset, and the one that its next record will have.
type Bounds struct{ Start, End int64 }

// Lost is what of a partition is lost, or will not be read, when its next record was to be at an offset. The range is empty
// if the offset is in the log. Offsets are no records: some may never have been any (transaction markers, compaction).
func (l OffsetLoss) Lost(next int64, log Bounds) record.Lost {
	switch {
	case next > log.End: // they were read, and are gone
		return record.LostRange(log.End, next)
	case next >= 0 && next < log.Start && l == LossNewest:
		return record.LostRange(next, log.End)
	case next >= 0 && next < log.Start:
		return record.LostRange(next, log.Start)
	}
	return record.Lost{}
}

// Target is where the policy goes on in such a log.
func (l OffsetLoss) Target(log Bounds) int64 {
	if l == LossNewest {
		return log.End
	}
	return log.Start
}

// loss is a partition whose next record is gone.
type loss struct {
	o *owned
	problem
	told bool
}

// losses are those that nobody has dealt with yet.
type losses struct {
	mu  sync.Mutex
	all map[tp]*loss
	new chan struct{} // one token
}

func newLosses() *losses { return &losses{all: map[tp]*loss{}, new: make(chan struct{}, 1)} }

func (ls *losses) add(l *loss) {
	ls.mu.Lock()
	ls.all[l.o.tp] = l
	ls.mu.Unlock()
	select {
	case ls.new <- struct{}{}:
	default:
	}
}

func (ls *losses) remove(l *loss) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.all[l.o.tp] == l {
		delete(ls.all, l.o.tp)
	}
}

func (ls *losses) standing() []*loss {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	all := make([]*loss, 0, len(ls.all))
	for _, l := range ls.all {
		all = append(all, l)
	}
	return all
}

// watchLosses reports what was lost, with its numbers, and goes on as OnOffsetLoss says. It asks brokers, so the poll does
// not.
func (s *Source) watchLosses() {
	adm := kadm.NewClient(s.client)
	tick := time.NewTicker(tendInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.losses.new:
		case <-tick.C:
		case <-s.quit:
			return
		}
		for _, l := range s.losses.standing() {
			if s.decide(adm, l) {
				s.losses.remove(l)
			}
		}
		s.readAnew()
	}
}

// decide reports whether nothing more is to be done about the loss.
func (s *Source) decide(adm *kadm.Client, l *loss) bool {
	log, err := s.bounds(s.root, adm, l.o.tp)
	if !l.told {
		s.tellLoss(l, log, err)
		l.told = true
	}
	switch {
	case s.claimOf(l.o.tp) != l.o, s.cfg.OnOffsetLoss == LossHold:
		return true
	case l.kind == record.ReportTopicRecreated:
		return false // with the others of its topic, in readAnew
	case err != nil:
		return false
	}
	return s.goOn(l.o, log)
}

func (s *Source) bounds(ctx context.Context, adm *kadm.Client, at tp) (Bounds, error) {
	ctx, cancel := context.WithTimeout(ctx, endsTimeout)
	defer cancel()
	starts, err := offsets(at.topic)(adm.ListStartOffsets(ctx, at.topic))
	if err != nil {
		return Bounds{}, err
	}
	ends, err := offsets(at.topic)(adm.ListEndOffsets(ctx, at.topic))
	if err != nil {
		return Bounds{}, err
	}
	start, ok := starts[at.partition]
	end, ok2 := ends[at.partition]
	if !ok || !ok2 {
		return Bounds{}, fmt.Errorf("%s has no partition %d any more", at.topic, at.partition)
	}
	return Bounds{start, end}, nil
}

// tellLoss reports a loss. Where nobody answers for the log, what is known is told without it.
func (s *Source) tellLoss(l *loss, log Bounds, err error) {
	next := s.position(l.o)
	r := record.Report{Kind: l.kind, Topic: l.o.topic, Partition: l.o.partition, Offset: next, Err: l.err, Hint: l.hint()}
	switch {
	case l.kind == record.ReportTopicRecreated:
		r.Lost = record.LostRange(next, l.o.high.Load())
	case err == nil:
		r.Lost = s.cfg.OnOffsetLoss.Lost(next, log)
	}
	if err == nil {
		r.Err = fmt.Errorf("%w; the log holds %d to %d", l.err, log.Start, log.End)
	}
	if s.cfg.OnOffsetLoss != LossHold {
		r.Hint = "it goes on by itself, as OnOffsetLoss says: " + s.cfg.OnOffsetLoss.String()
	}
	s.report(r)
}

// position is where fetching would go on, -1 if unknown.
func (s *Source) position(o *owned) int64 {
	if next := o.next(); next >= 0 {
		return next
	}
	return s.committed(o)
}

// goOn lets a partition go on where OnOffsetLoss says, and reports whether it does. Records that were read before, and are
// not settled yet, stay what they are: to go forwards nobody waits for them, the offset is committed over the gap with the
// first record behind it. To go back, the watermark must have nothing before it.
func (s *Source) goOn(o *owned, log Bounds) bool {
	s.ending.lock() // nobody revokes meanwhile
	defer s.ending.unlock()
	if s.claimOf(o.tp) != o {
		return true
	}
	next, target := s.position(o), s.cfg.OnOffsetLoss.Target(log)
	switch {
	case next >= log.Start && next <= log.End: // it is there after all
		s.problems.solve(o.tp)
		s.flow(o)
		return true
	case target < next && o.kept.Load():
		// What is there now would pass for what was done.
		s.hold(o, problem{kind: record.ReportTruncated, err: fmt.Errorf("everything before offset %d was read, and the log ends at %d", next, log.End)})
		return true
	}
	if idle := o.Move(claim.Mark{Offset: target, Epoch: -1}); !idle && target < next {
		return false
	}
	o.elsewhere.Store(target)
	s.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{o.topic: {o.partition: {Epoch: -1, Offset: target}}})
	s.problems.solve(o.tp)
	s.flow(o)
	return true
}
