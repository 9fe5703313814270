package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// heardLately is how long ago records of a claim came at most whose topic is there without a question: an error of a fetch
// would have told of another.
const heardLately = 2 * time.Second

// doubtful says whether nothing was heard lately of the topic that the claim is of. One without an id cannot be compared.
func (o *owned) doubtful() bool {
	return o.Identify(uuid.Nil) != uuid.Nil && (o.paused.Load() || time.Since(time.Unix(0, o.heard.Load())) > heardLately)
}

// ours are the marks of claims whose topics are still there, and an error for those that nobody could answer for.
//
// A claim is full, or held, and its partition paused -> the topic is deleted, with the group's offsets, and created again ->
// records of the old one settle: no fetch has told of it, so it is not foreign yet, and its offset would be committed by name
// for the new one, whose records before it nobody would read. That the topic is another is no problem of the claim yet: the
// broker that says so may be the one that knows less, and the fetch will tell.
func (s *Source) ours(ctx context.Context, marks map[*owned]claim.Mark) (map[*owned]claim.Mark, error) {
	doubted := map[string][]*owned{}
	for o := range marks {
		if o.doubtful() {
			doubted[o.topic] = append(doubted[o.topic], o)
		}
	}
	if len(doubted) == 0 {
		return marks, nil
	}
	ids, err := s.idsNow(ctx, slices.Collect(maps.Keys(doubted)))
	ours := maps.Clone(marks)
	for topic, claims := range doubted {
		for _, o := range claims {
			if ids[topic] != o.Identify(uuid.Nil) {
				delete(ours, o)
			}
		}
	}
	return ours, err
}

// idsNow asks for the ids of topics. It leaves time to commit what needs no answer.
func (s *Source) idsNow(ctx context.Context, topics []string) (map[string]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CommitReserve/2)
	defer cancel()
	resp, err := metadataRequest(topics).RequestWith(ctx, s.client)
	if err != nil {
		return nil, fmt.Errorf("ids of topics %v, whose offsets are not committed without: %w", topics, err)
	}
	ids := make(map[string]uuid.UUID, len(topics))
	var errs error
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			errs = errors.Join(errs, fmt.Errorf("id of topic %s, whose offsets are not committed without: %w", *t.Topic, err))
			continue
		}
		ids[*t.Topic] = t.TopicID
	}
	return ids, errs
}

// metadataRequest asks for topics by their names.
func metadataRequest(topics []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	return req
}

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
