package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

// idTimeout bounds the look-up of topic ids in the assignment's callback; the client has them in its cache as a rule.
const idTimeout = 5 * time.Second

// ending says how claims end.
type ending struct {
	event string
	cause error
	grace time.Duration
}

func (s *Source) assigned(ctx context.Context, _ *kgo.Client, parts map[string][]int32) {
	s.pulse.beat()
	s.pulse.joined.Store(true)
	s.problems.solve(groupProblem)
	// The first assignment may come before NewClient has returned to join, which holds the lock until s.client is set.
	s.mu.Lock()
	stopping := s.stopping
	s.mu.Unlock()
	if len(parts) == 0 || stopping {
		return
	}
	ids := s.topicIDs(ctx, parts)
	var news []*owned
	s.mu.Lock()
	for topic, ps := range parts {
		for _, p := range ps {
			if !s.stopping {
				news = append(news, s.newOwned(tp{topic, p}, ids[topic]))
			}
		}
	}
	s.share()
	s.mu.Unlock()
	for _, o := range news {
		// The client remembers a pause across assignments: one that an earlier claim left would last for ever.
		s.client.ResumeFetchPartitions(map[string][]int32{o.topic: {o.partition}})
		s.tell(o.tp, "assigned")
		s.compareID(o)
	}
}

// topicIDs are best effort: a broker that knows none, or does not answer in time, leaves them out.
func (s *Source) topicIDs(ctx context.Context, parts map[string][]int32) map[string]uuid.UUID {
	ctx, cancel := context.WithTimeout(ctx, idTimeout)
	defer cancel()
	ids := make(map[string]uuid.UUID, len(parts))
	resp, err := s.client.RequestCachedMetadata(ctx, metadataRequest(slices.Collect(maps.Keys(parts))), metadataMaxAge)
	if err != nil {
		s.cfg.Logger.Warn("kafka source: topic ids not known yet", "err", err)
		return ids
	}
	for _, t := range resp.Topics {
		if t.Topic != nil {
			ids[*t.Topic] = t.TopicID
		}
	}
	return ids
}

// compareID holds a claim whose topic is another one than this process has read before.
func (s *Source) compareID(o *owned) {
	id := o.Identify(uuid.Nil)
	s.mu.Lock()
	seen := s.ids[o.topic]
	if seen == uuid.Nil {
		s.ids[o.topic] = id
	}
	s.mu.Unlock()
	if seen != uuid.Nil && id != uuid.Nil && seen != id {
		s.hold(o, problem{kind: record.ReportTopicRecreated, err: errRecreated(seen, id)})
	}
}

// revoked runs in the client's callback: the broker waits for it, RebalanceTimeout at most, and heartbeats go on.
func (s *Source) revoked(ctx context.Context, _ *kgo.Client, parts map[string][]int32) {
	if len(parts) == 0 {
		return // routine: a cooperative rebalance that takes nothing
	}
	s.endParts(ctx, parts, ending{event: "revoked", cause: record.ErrRevoked, grace: s.cfg.DrainGrace})
}

// lost: somebody else may have the partitions already. There is no grace, and nothing to commit.
func (s *Source) lost(ctx context.Context, _ *kgo.Client, parts map[string][]int32) {
	if len(parts) == 0 {
		return
	}
	// A stop may be draining these very claims: it need not wait any longer.
	for _, o := range s.claimsOf(parts) {
		o.EndHard(record.ErrLost)
	}
	s.endParts(ctx, parts, ending{event: "lost", cause: record.ErrLost})
}

func (s *Source) endParts(ctx context.Context, parts map[string][]int32, how ending) {
	s.ending.lock()
	defer s.ending.unlock()
	s.mu.Lock()
	for topic, ps := range parts {
		for _, p := range ps {
			delete(s.silenced, tp{topic, p})
		}
	}
	s.mu.Unlock()
	s.endClaims(ctx, s.claimsOf(parts), how)
}

// endClaims ends claims in order: the poll's hand is empty, nothing begins, what runs may finish within the grace, its
// contexts end, the claims close, and what they settled until then is committed. The end of ctx ends the grace and nothing
// else. With Source.ending held.
func (s *Source) endClaims(ctx context.Context, claims []*owned, how ending) {
	if len(claims) == 0 {
		return
	}
	s.fence.pass()
	for _, o := range claims {
		o.EndSoft(how.cause)
	}
	lost := errors.Is(how.cause, record.ErrLost)
	if !lost {
		s.drain(ctx, claims, how)
	}
	marks := make(map[*owned]claim.Mark, len(claims))
	for _, o := range claims {
		if m, ok := o.Close(how.cause); ok && !s.foreign(o) {
			marks[o] = m
		}
	}
	if !lost {
		s.lastCommit(ctx, marks)
	}
	s.forget(claims, how.event)
}

// drain waits for what is in flight: first within the grace, then, its contexts ended, within HardGrace.
func (s *Source) drain(ctx context.Context, claims []*owned, how ending) {
	grace, cancel := context.WithTimeout(ctx, how.grace)
	defer cancel()
	if drained(grace, claims) {
		return
	}
	for _, o := range claims {
		o.EndHard(how.cause)
	}
	hard, cancelHard := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.HardGrace)
	defer cancelHard()
	if !drained(hard, claims) {
		s.cfg.Logger.Warn("kafka source: claims end without handlers that ignore their context", "group", s.cfg.Group)
	}
}

func drained(ctx context.Context, claims []*owned) bool {
	for _, o := range claims {
		select {
		case <-o.Drained():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (s *Source) forget(claims []*owned, event string) {
	s.mu.Lock()
	for _, o := range claims {
		if s.claims[o.tp] == o {
			delete(s.claims, o.tp)
		}
		s.problems.solve(o.tp)
	}
	s.share()
	s.mu.Unlock()
	for _, o := range claims {
		s.tell(o.tp, event)
	}
}
