package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/kafka/internal/cut"
	"github.com/headrace/headrace/record"
)

// beginTimeout bounds Begin, and the look at the logs after it, each. Heartbeats go on meanwhile, and a rebalance ends both.
const beginTimeout = 3 * time.Second

// Start is where a partition begins, as SourceConfig.Begin is asked and answers.
type Start struct {
	Topic     string
	TopicID   uuid.UUID // uuid.Nil if the broker did not tell
	Partition int32
	// Offset is the first to be read, -1 for none. The question has the committed one; in the answer everything before it
	// is remembered as done.
	Offset int64
	// Epoch is the leader's of the record before Offset, -1 if unknown.
	Epoch int32
	// End is in the answer: behind the last record of which anything is remembered. Defaults to Offset.
	End int64
}

func (s Start) tp() tp { return tp{s.Topic, s.Partition} }

// known is what the log must hold for the answer to be of it.
func (s Start) known() cut.Known {
	return cut.Known{Topic: s.Topic, Partition: s.Partition, Offset: s.Offset, Epoch: s.Epoch, End: s.End}
}

// starts is what the client would begin with, by topic and partition.
type starts = map[string]map[int32]kgo.Offset

// begin moves the beginnings of newly assigned partitions on to where Begin has them. The client calls it between the
// committed offsets and the first fetch, when the claims have been made.
//
// Whatever cannot be asked or looked at changes nothing: a partition that begins at its committed offset reads records
// again that were done, and those are known to whoever remembers them. To begin too late would skip some, so a beginning
// only moves on an answer, and never back: what is behind the committed offset was settled by every route.
func (s *Source) begin(ctx context.Context, at starts) (starts, error) {
	s.beginAtEnd(ctx, at)
	ask := s.questions(at)
	kept, err := s.askBegin(ctx, ask)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err() // a rebalance: what stays is asked for again
	case err != nil:
		s.keep(ask) // they may well be remembered
		s.cfg.Logger.Warn("kafka source: partitions begin at their committed offsets, not where Begin has them; what was done is read again",
			"group", s.cfg.Group, "err", err)
		return at, nil
	}
	s.keep(kept)
	looked := s.holdCut(ctx, kept)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, k := range kept {
		// The client compares the epoch itself before it fetches. Without one, only the look at the log's end shows that
		// the offset is in it.
		if looked || k.Epoch >= 0 {
			s.moveOn(at, k)
		}
	}
	return at, nil
}

// questions are the committed offsets of the partitions.
func (s *Source) questions(at starts) []Start {
	var ask []Start
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, ps := range at {
		for p, offset := range ps {
			o := s.claims[tp{topic, p}]
			if o == nil {
				continue // the Source stops
			}
			e := offset.EpochOffset()
			start := Start{Topic: topic, TopicID: o.Identify(uuid.Nil), Partition: p, Offset: e.Offset, Epoch: e.Epoch}
			if e.Offset < 0 {
				start.Offset, start.Epoch = -1, -1
			}
			// The client forgets the committed offset of a partition that begins elsewhere.
			o.committed.Store(start.Offset)
			o.begun.Store(start.Offset)
			ask = append(ask, start)
		}
	}
	return ask
}

// askBegin gives the answers to questions that were asked.
func (s *Source) askBegin(ctx context.Context, ask []Start) ([]Start, error) {
	if len(ask) == 0 || s.cfg.Begin == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	return s.cfg.Begin(ctx, ask)
}

// keep notes the partitions whose records somebody remembers by their offsets.
func (s *Source) keep(kept []Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kept {
		if o := s.claims[k.tp()]; o != nil {
			o.kept.Store(true)
		}
	}
}

// holdCut holds the partitions whose logs were cut below what is remembered of them: their new records would pass for the
// ones that were there before. It reports whether the logs could be looked at.
func (s *Source) holdCut(ctx context.Context, kept []Start) bool {
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	known := make([]cut.Known, len(kept))
	for i, k := range kept {
		known[i] = k.known()
	}
	found, err := cut.Find(ctx, kadm.NewClient(s.client), known)
	if err != nil {
		s.cfg.Logger.Warn("kafka source: the logs of partitions could not be compared with what is remembered of them",
			"group", s.cfg.Group, "err", err)
		return false
	}
	for _, f := range found {
		if o := s.claimOf(tp{f.Topic, f.Partition}); o != nil {
			s.hold(o, problem{kind: record.ReportTruncated, err: f})
		}
	}
	return true
}

// moveOn lets a partition begin later than at its committed offset. The watermark goes with it, so that the offset is
// committed although no record may come to move it.
func (s *Source) moveOn(at starts, k Start) {
	offset, asked := at[k.Topic][k.Partition]
	o := s.claimOf(k.tp())
	if !asked || o == nil || k.Offset <= max(offset.EpochOffset().Offset, 0) || s.problems.holds(o.tp) {
		return
	}
	at[k.Topic][k.Partition] = offset.At(k.Offset).WithEpoch(k.Epoch)
	o.begun.Store(k.Offset)
	o.GoOn(claim.Mark{Offset: k.Offset, Epoch: k.Epoch})
}

// errBackwards is a log that was cut while it was read. The client goes on where it was cut, and tells of the loss when the
// records from there on may have been handed out already.
func errBackwards(next int64, r *kgo.Record) error {
	return fmt.Errorf("everything before offset %d was read, and now offset %d of leader epoch %d comes", next, r.Offset, r.LeaderEpoch)
}

func (s *Source) claimOf(at tp) *owned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[at]
}
