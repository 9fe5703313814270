package outbox

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/internal/backoff"
)

const (
	firstWait = 200 * time.Millisecond
	lastWait  = 10 * time.Second
	// growth is how much more is sent to a topic after everything was confirmed.
	growth = 8
)

// topics is what a forwarder knows of the topics that it sends to. A topic that does not take an event stands still, in
// order, and the others go on.
type topics map[string]*topic

// topic begins with one event, and with each sender anew: what is sent together to one partition is one batch only once the
// client knows the partitions. It learns them while it flushes -> the first events leave before the others are handed to
// their partition -> they are refused -> the others are written. From there on as much as is taken: the brokers compare a
// batch, and not a record, with max.message.bytes.
type topic struct {
	limit  int       // how many events are sent at once
	by     int       // the sender (senders.nth) that has sent last, and that the limit is of
	until  time.Time // nothing is sent before
	failed int       // times in a row
	sent   bool      // and not answered yet
	late   bool      // and nobody waits for it
	told   map[cause]bool
}

// cause is why a topic stands still: which event of it is in the way, and what the brokers say.
type cause struct {
	event int64
	said  string
}

func causeOf(r result) cause {
	c := cause{event: r.failed.id}
	if said := (*kerr.Error)(nil); errors.As(r.err, &said) {
		c.said = said.Message
	}
	return c
}

func (ts topics) of(name string) *topic {
	t := ts[name]
	if t == nil {
		t = &topic{limit: 1}
		ts[name] = t
	}
	return t
}

// waiting are the topics to which nothing is sent at now: they failed a moment ago, or have not answered.
func (ts topics) waiting(now time.Time) []string {
	names := []string{} // not NULL
	for name, t := range ts {
		if t.sent || now.Before(t.until) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// unanswered is how many topics have not answered.
func (ts topics) unanswered() (n int) {
	for _, t := range ts {
		if t.sent {
			n++
		}
	}
	return n
}

// awaited is how many of these somebody waits for.
func (ts topics) awaited() (n int) {
	for _, t := range ts {
		if t.sent && !t.late {
			n++
		}
	}
	return n
}

// giveUp has nobody wait for those that have not answered: else each wave of the others would wait for them anew.
func (ts topics) giveUp() {
	for _, t := range ts {
		t.late = t.sent
	}
}

// cut gives those of events, which are in order, that may be sent together, and takes note that they are sent by that sender.
func (ts topics) cut(events []*event, by int) []*event {
	wave := events[:0]
	bytes, counts, full := 0, map[string]int{}, map[string]bool{}
	for _, e := range events {
		if full[e.topic] {
			continue
		}
		if bytes += int(e.bytes); bytes > maxWave && len(wave) > 0 {
			break
		}
		t := ts.of(e.topic)
		if t.sent = true; t.by != by {
			t.by, t.limit = by, 1
		}
		counts[e.topic]++
		full[e.topic] = counts[e.topic] >= t.limit
		wave = append(wave, e)
	}
	return wave
}

// answered takes note of what became of what was sent to the topic. It says whether the topic stands still for a cause that
// was not told yet: brokers that are away, and then an event that is too large, are two.
func (t *topic) answered(r result, now time.Time) (news bool) {
	t.sent, t.late = false, false
	switch {
	case r.err == nil:
		t.failed, t.until, t.told = 0, time.Time{}, nil
		t.limit = min(max(t.limit, r.sent)*growth, maxBatch)
		return false
	case errors.Is(r.err, kerr.MessageTooLarge) && r.sent > 1:
		t.limit = max(r.sent/2, 1)
		return false
	}
	t.until, t.limit = now.Add(backoff.Exponential(firstWait, lastWait, t.failed)), 1
	t.failed++
	if r.failed == nil { // it was not answered
		return false
	}
	if t.told == nil {
		t.told = map[cause]bool{}
	}
	c := causeOf(r)
	news, t.told[c] = !t.told[c], true
	return news
}
