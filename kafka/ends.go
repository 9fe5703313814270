package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	// endsTimeout bounds one question for the ends of logs.
	endsTimeout = 5 * time.Second
	// endsInterval is between two questions for the end of a partition that is not fetched.
	endsInterval = 10 * time.Second
)

// watchEnds asks for the ends of the logs that no fetch tells: a fetch without records never reaches us, so a partition
// that is drained when it is assigned would have no lag at all, and one that is paused, because what it needs is down,
// would show the lag that it had when it was paused.
func (s *Source) watchEnds() {
	adm := kadm.NewClient(s.client)
	tick := time.NewTicker(tendInterval)
	defer tick.Stop()
	var asked time.Time
	for {
		select {
		case <-tick.C:
		case <-s.quit:
			return
		}
		paused := time.Since(asked) >= endsInterval
		if paused {
			asked = time.Now()
		}
		s.askEnds(adm, s.dark(paused))
	}
}

// dark are the claims whose log's end is not known, with paused also those that are not fetched, by topic.
func (s *Source) dark(paused bool) map[string][]*owned {
	dark := map[string][]*owned{}
	for _, o := range s.allClaims() {
		if o.high.Load() < 0 || paused && o.paused.Load() {
			dark[o.topic] = append(dark[o.topic], o)
		}
	}
	return dark
}

// askEnds is best effort: what the broker does not answer stays as it is until the next time.
func (s *Source) askEnds(adm *kadm.Client, dark map[string][]*owned) {
	if len(dark) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.root, endsTimeout)
	defer cancel()
	topics := make([]string, 0, len(dark))
	for topic := range dark {
		topics = append(topics, topic)
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return
	}
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return
	}
	for topic, claims := range dark {
		for _, o := range claims {
			start, ok := starts.Lookup(topic, o.partition)
			end, ok2 := ends.Lookup(topic, o.partition)
			if ok && ok2 && start.Err == nil && end.Err == nil {
				o.learn(start.Offset, end.Offset)
			}
		}
	}
}

// learn takes the bounds of the log. A fetch that came meanwhile knows more.
func (o *owned) learn(start, end int64) {
	o.start.CompareAndSwap(-1, start)
	for was := o.high.Load(); was < end; was = o.high.Load() {
		if o.high.CompareAndSwap(was, end) {
			return
		}
	}
}
