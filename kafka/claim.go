package kafka

import (
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/kafka/internal/route"
	"github.com/headrace/headrace/record"
)

// owned is a claim with what the Source knows of its partition.
type owned struct {
	*claim.Claim
	tp

	lines     map[*route.Route]*claim.Line // guarded by Source.mu
	sent      claim.Mark                   // last committed; guarded by the commit token
	committed atomic.Int64                 // the same for Stats, -1 for none
	start     atomic.Int64                 // of the log when it was asked for, -1 if it was not
	begun     atomic.Int64                 // where the client was told to begin, -1 if it was not
	elsewhere atomic.Int64                 // where the client was told to go on since, -1 once something came of it
	high      atomic.Int64                 // high watermark, -1 if unknown
	heard     atomic.Int64                 // when records of it came last, unix nanoseconds
	paused    atomic.Bool                  // as the client was told
	silent    atomic.Bool                  // the coordinator no longer vouches for it: nothing is to be fetched
	kept      atomic.Bool                  // somebody remembers its records by their offsets, see SourceConfig.Begin
}

// newOwned makes a claim with a line for each route of the topic; the routes without a subscription hold their records
// until they have one again. With Source.mu held.
func (s *Source) newOwned(at tp, id uuid.UUID) *owned {
	o := &owned{tp: at, lines: make(map[*route.Route]*claim.Line)}
	o.committed.Store(-1)
	o.start.Store(-1)
	o.begun.Store(-1)
	o.elsewhere.Store(-1)
	o.high.Store(-1)
	o.Claim = claim.New(claim.Config{
		Topic: at.topic, TopicID: id, Partition: at.partition, OnLow: s.room,
	}, s.limit(at.topic, s.cfg.MaxInFlightBytes/int64(len(s.claims)+1))) // until share
	for _, r := range s.routes[at.topic] {
		s.addLine(o, r)
	}
	s.claims[at] = o
	return o
}

// next is where fetching goes on, -1 if unknown.
func (o *owned) next() int64 {
	if at := o.elsewhere.Load(); at >= 0 {
		return at
	}
	if end := o.Load().End; end >= 0 {
		return end
	}
	return o.begun.Load()
}

// addLine gives the route its line in the claim and starts to deliver. With Source.mu held.
func (s *Source) addLine(o *owned, r *route.Route) {
	if o.lines[r] == nil {
		o.lines[r] = o.NewLine(r.Line)
	}
	r.Serve(o.Claim, o.lines[r])
}

func (s *Source) allClaims() []*owned {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*owned, 0, len(s.claims))
	for _, o := range s.claims {
		all = append(all, o)
	}
	return all
}

func (s *Source) claimsOf(parts map[string][]int32) []*owned {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []*owned
	for topic, ps := range parts {
		for _, p := range ps {
			if o := s.claims[tp{topic, p}]; o != nil {
				some = append(some, o)
			}
		}
	}
	return some
}

// limit is one claim's of which bytes are the share: never nothing, because a claim that is full while it is empty is
// paused for ever. With Source.mu held.
func (s *Source) limit(topic string, bytes int64) claim.Limit {
	l := claim.Limit{Records: s.cfg.MaxInFlight, Bytes: max(bytes, 1)}
	if l.Records > 0 {
		return l
	}
	l.Records = minInFlight
	for _, r := range s.routes[topic] {
		l.Records = max(l.Records, inFlightBatches*r.Line.MaxBatch)
	}
	return l
}

// replayShare is the part of the memory that all claims of replay topics have together beside others, at most as much as
// one other: they are empty nearly always, and at one partition half of it would lie idle, of which the others are short while
// keys fail.
const replayShare = 8

// share gives every claim its share of memory anew. With Source.mu held.
func (s *Source) share() {
	replays := 0
	for at := range s.claims {
		if s.replays(at.topic) {
			replays++
		}
	}
	part, replay := shares(s.cfg.MaxInFlightBytes, int64(len(s.claims)-replays), int64(replays))
	for at, o := range s.claims {
		bytes := part
		if s.replays(at.topic) {
			bytes = replay
		}
		o.SetLimit(s.limit(at.topic, bytes))
	}
	s.room()
}

// shares are what one of the ordinary claims has of all, and one of the replay topics'.
func shares(all, ordinary, replays int64) (part, replay int64) {
	switch {
	case ordinary == 0:
		return 0, all / max(replays, 1)
	case replays == 0:
		return all / ordinary, 0
	}
	together := all / max(replayShare, ordinary+1)
	return (all - together) / ordinary, together / replays
}

// replays says whether a topic is read as a replay topic only. With Source.mu held.
func (s *Source) replays(topic string) bool {
	for _, r := range s.routes[topic] {
		if !r.Line.Replay {
			return false
		}
	}
	return len(s.routes[topic]) > 0
}

// tell calls the claim hook.
func (s *Source) tell(at tp, event string) {
	if s.cfg.Hooks.OnClaim != nil {
		s.cfg.Hooks.OnClaim(record.ClaimInfo{Topic: at.topic, Partition: at.partition, Event: event})
	}
}

func (s *Source) report(r record.Report) {
	if s.cfg.Hooks.OnReport != nil {
		s.cfg.Hooks.OnReport(r)
	}
}
