package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

// readAnew has the client read topics that were created again, once everything that was read of the old ones is settled.
//
//	held ─► settled ─► purged: the client leaves the topic ─► its claims are revoked ─► added: it reads the new one
//
// The client never takes over a new topic by itself. Between the two steps its claims must have ended: a group whose
// subscription is the same before and after would assign nothing new.
func (s *Source) readAnew() {
	for topic, claims := range s.anewClaims() {
		switch {
		case len(claims) == 0:
			s.mu.Lock()
			delete(s.anew, topic)
			delete(s.ids, topic)
			s.mu.Unlock()
			s.client.AddConsumeTopics(topic)
		case slices.ContainsFunc(claims, func(o *owned) bool { return o.Load().Records > 0 }):
			// A record of the old topic runs, or waits: it has its outcome first.
		case s.leaves(topic):
			s.client.PurgeTopicsFromConsuming(topic)
		}
	}
}

// leaves notes that the topic is being left, and reports whether it was not before.
func (s *Source) leaves(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, leaving := s.anew[topic]
	s.anew[topic] = struct{}{}
	if s.cfg.OnOffsetLoss == LossNewest {
		s.atEnd[topic] = struct{}{}
	}
	return !leaving
}

// anewClaims are the claims of the topics that were created again, those of which are none any more included.
func (s *Source) anewClaims() map[string][]*owned {
	found := map[string][]*owned{}
	if s.cfg.OnOffsetLoss == LossHold {
		return found
	}
	for _, l := range s.losses.standing() {
		if l.kind == record.ReportTopicRecreated {
			found[l.o.topic] = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic := range s.anew {
		found[topic] = nil
	}
	for at, o := range s.claims {
		if _, ok := found[at.topic]; ok {
			found[at.topic] = append(found[at.topic], o)
		}
	}
	return found
}

// foreign says whether the claim is of a topic that is not there any more: its offsets are nobody's. Brokers before 4.1
// would commit them, by the topic's name, for the new one.
func (s *Source) foreign(o *owned) bool { return s.problems.kind(o.tp) == record.ReportTopicRecreated }

// beginAtEnd moves the partitions of topics that were created again, and of which nothing is committed, to their ends.
func (s *Source) beginAtEnd(ctx context.Context, at starts) {
	for topic, parts := range at {
		s.mu.Lock()
		_, is := s.atEnd[topic]
		s.mu.Unlock()
		if !is {
			continue
		}
		for p, offset := range parts {
			o := s.claimOf(tp{topic, p})
			if o == nil || offset.EpochOffset().Offset >= 0 {
				continue
			}
			log, err := s.bounds(ctx, kadm.NewClient(s.client), o.tp)
			if err != nil { // the client asks again, for as long as it takes
				parts[p] = kgo.NewOffset().AtEnd()
				continue
			}
			parts[p] = kgo.NewOffset().At(log.End)
			o.begun.Store(log.End)
			o.Move(claim.Mark{Offset: log.End, Epoch: -1})
			s.report(record.Report{
				Kind: record.ReportTopicRecreated, Topic: topic, Partition: p, Offset: log.End, Lost: record.LostRange(log.Start, log.End),
				Hint: "the new topic is read from its end, as OnOffsetLoss says: newest",
			})
		}
	}
}
