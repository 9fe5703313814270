package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

const (
	// commitTimeout bounds one periodic commit; the next one commits more.
	commitTimeout = 10 * time.Second
	// commitPause is the wait before a last commit is tried again.
	commitPause = 100 * time.Millisecond
	// commitPatience is how many commits in a row may fail before an operator is told.
	commitPatience = 5
)

// commitLoop commits the watermarks. It is a goroutine of its own because a commit may take as long as the coordinator
// likes, and no record may wait for that.
func (s *Source) commitLoop() {
	tick := time.NewTicker(s.cfg.CommitInterval)
	defer tick.Stop()
	for failed := 0; ; {
		select {
		case <-tick.C:
		case <-s.quit:
			return
		}
		if err := s.commitMoved(); err == nil {
			failed = 0
		} else if failed++; failed == commitPatience {
			s.report(record.Report{
				Kind: record.ReportCommitFailed, Partition: -1, Offset: -1, Err: err,
				Hint: "records are redelivered after a restart; check the consumer group's permissions and its coordinator",
			})
		}
	}
}

// commitMoved commits every open claim whose watermark has moved.
//
// Snapshot and commit are under one token: an older snapshot whose commit overtook a newer one would move the offset
// backwards, which the broker accepts.
func (s *Source) commitMoved() error {
	ctx, cancel := context.WithTimeout(s.root, commitTimeout)
	defer cancel()
	if !s.commits.take(ctx) {
		return ctx.Err()
	}
	defer s.commits.unlock()
	marks := make(map[*owned]claim.Mark)
	for _, o := range s.allClaims() {
		if m, ok := o.Watermark(); ok && m != o.sent && !s.foreign(o) {
			marks[o] = m
		}
	}
	return s.commit(ctx, marks)
}

// lastCommit commits what claims settled until they closed, also when whoever stops the Source waits no longer. It tries
// again while a join is being completed.
func (s *Source) lastCommit(ctx context.Context, marks map[*owned]claim.Mark) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.CommitReserve)
	defer cancel()
	if !s.commits.take(ctx) {
		return
	}
	defer s.commits.unlock()
	maps.DeleteFunc(marks, func(o *owned, m claim.Mark) bool { return m == o.sent }) // nothing is to be asked for these
	for {
		err := s.commit(ctx, marks)
		if err == nil {
			return
		}
		s.cfg.Logger.Warn("kafka source: last commit of ended claims", "group", s.cfg.Group, "err", err)
		if !errors.Is(err, kerr.RebalanceInProgress) && !errors.Is(err, kerr.IllegalGeneration) && !errors.Is(err, kerr.StaleMemberEpoch) || !backoff.Wait(ctx, commitPause) {
			return
		}
	}
}

// commit sends one request of our own, in the member's name. The client's commits wait for a join that is under way,
// which lasts as long as the slowest member drains (measured: 9.6 s); the broker takes this one. With the commit token.
func (s *Source) commit(ctx context.Context, marks map[*owned]claim.Mark) error {
	marks, doubt := s.ours(ctx, marks)
	if len(marks) == 0 {
		return doubt
	}
	req, byPlace := s.commitRequest(marks)
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return errors.Join(doubt, fmt.Errorf("commit offsets of %s: %w", s.cfg.Group, err))
	}
	errs := doubt
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			o := byPlace[place{t.TopicID, t.Topic, p.Partition}]
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				errs = errors.Join(errs, fmt.Errorf("commit offset of %s/%d: %w", t.Topic, p.Partition, err))
			} else if o != nil {
				o.sent = marks[o]
				o.committed.Store(marks[o].Offset)
			}
		}
	}
	return errs
}

// place names a partition in a response, by the topic's id or its name as the version of the protocol has it.
type place struct {
	id        uuid.UUID
	topic     string
	partition int32
}

func (s *Source) commitRequest(marks map[*owned]claim.Mark) (*kmsg.OffsetCommitRequest, map[place]*owned) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = s.cfg.Group
	req.MemberID, req.Generation = s.client.GroupMetadata()
	if s.cfg.InstanceID != "" {
		req.InstanceID = &s.cfg.InstanceID
	}
	topics := make(map[string]*kmsg.OffsetCommitRequestTopic)
	byPlace := make(map[place]*owned, 2*len(marks))
	for o, m := range marks {
		id := o.Identify(uuid.Nil)
		t := topics[o.topic]
		if t == nil {
			fresh := kmsg.NewOffsetCommitRequestTopic()
			t = &fresh
			t.Topic, t.TopicID = o.topic, id
			topics[o.topic] = t
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = o.partition, m.Offset, m.Epoch
		t.Partitions = append(t.Partitions, p)
		byPlace[place{id, "", o.partition}] = o
		byPlace[place{uuid.Nil, o.topic, o.partition}] = o
	}
	for _, t := range topics {
		req.Topics = append(req.Topics, *t)
	}
	return req, byPlace
}
