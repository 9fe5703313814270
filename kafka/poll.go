package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

// pollRecords is how many records one poll takes into its hand.
const pollRecords = 4000

// poll moves what was fetched into the claims. It never waits for a handler: a claim that is full is paused.
func (s *Source) poll() {
	defer s.fence.finish()
	for s.root.Err() == nil && !s.quitting() {
		ctx := s.fence.begin(s.root)
		fetches := s.client.PollRecords(ctx, pollRecords)
		for i := range fetches {
			s.fetched(fetches[i].Topics)
		}
		s.fence.end()
		if fetches.IsClientClosed() {
			return
		}
	}
}

func (s *Source) quitting() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

func (s *Source) fetched(topics []kgo.FetchTopic) {
	for i := range topics {
		for j := range topics[i].Partitions {
			s.fetchedPartition(topics[i].Topic, topics[i].TopicID, &topics[i].Partitions[j])
		}
	}
}

func (s *Source) fetchedPartition(topic string, id uuid.UUID, p *kgo.FetchPartition) {
	at := tp{topic, p.Partition}
	s.mu.Lock()
	o := s.claims[at]
	s.mu.Unlock()
	if p.Err != nil {
		s.partitionError(at, o, p.Err)
	}
	// Records of a partition that has no claim were fetched for one that has ended meanwhile; the next owner reads
	// them.
	if o == nil || len(p.Records) == 0 {
		return
	}
	if was := o.Identify(id); id != uuid.Nil && id != was {
		s.hold(o, problem{kind: record.ReportTopicRecreated, err: errRecreated(was, id)})
		return
	}
	if s.problems.lasts(at) {
		return // fetched before the pause
	}
	if first := p.Records[0]; o.kept.Load() && first.Offset < o.next() {
		s.hold(o, problem{kind: record.ReportTruncated, err: errBackwards(o.next(), first)})
		return
	}
	o.high.Store(p.HighWatermark)
	o.heard.Store(time.Now().UnixNano())
	s.problems.solve(at)
	o.elsewhere.Store(-1)
	o.Add(p.Records)
	s.flow(o)
}

// flow pauses a claim that is full, that has a problem or that nobody vouches for, and resumes it when it is none of these.
//
// The state is read under the same lock under which the client is told: full -> the last record settles and frees it ->
// the pause comes after the resume would leave the partition paused for ever.
func (s *Source) flow(o *owned) {
	s.flowMu.Lock()
	defer s.flowMu.Unlock()
	paused := o.silent.Load() || o.Full() || s.problems.holds(o.tp)
	if paused == o.paused.Load() {
		return
	}
	o.paused.Store(paused)
	parts := map[string][]int32{o.topic: {o.partition}}
	if paused {
		s.client.PauseFetchPartitions(parts)
	} else {
		s.client.ResumeFetchPartitions(parts)
	}
}

func (s *Source) flowAll() {
	for _, o := range s.allClaims() {
		s.flow(o)
	}
}

// room tells that a claim has room again. It is called with the claim's lock held.
func (s *Source) room() {
	select {
	case s.flowing <- struct{}{}:
	default:
	}
}

// ended says whether err is only the end of the poll's or the client's context.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed)
}
