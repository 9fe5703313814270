package consumer

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/kafka"
)

// keeping is for how long something can bring a record back.
type keeping struct {
	what    string
	kept    time.Duration
	shorter string // what else can be done than remembering for longer, "" for a topic's
}

func (k keeping) fix() string {
	return orElse(k.shorter, "shorten the retention.ms of what keeps them")
}

// keepings are those of a route, of the topics that exist. A letter may be replayed for as long as its topic keeps it,
// and what was replayed be delivered for as long as the replay topic does: replayed and effected -> two weeks later
// replayed again -> two weeks later the group has lost its offsets and reads the replay topic from its start.
func (c *Consumer) keepings(s spec, found topics) []keeping {
	ks := c.comings(s, found)
	if s.parks() {
		ks = append(ks, s.parking())
	}
	// The offset store remembers what was read of the topic without a row, however long that keeps it. Its rows are of dead
	// letters alone.
	if _, exists := found[s.topic]; exists && s.byOffset() {
		return ks[1:]
	}
	return ks
}

// comings are for how long a record can come for the first time, or again: that of the topic first, if it exists.
func (c *Consumer) comings(s spec, found topics) []keeping {
	var ks []keeping
	if t, exists := found[s.topic]; exists {
		ks = append(ks, keeping{what: fmt.Sprintf("topic %q keeps", t.Name), kept: t.Lifetime()})
	}
	letters, exists := found[s.options.DeadLetterTopic]
	if !exists {
		return ks
	}
	replayed, exists := found[s.replay]
	if !exists {
		return append(ks, keeping{what: fmt.Sprintf("topic %q keeps", letters.Name), kept: letters.Lifetime()})
	}
	return append(ks, keeping{
		what: fmt.Sprintf("topics %q and, after a replay, %q keep", letters.Name, replayed.Name),
		kept: together(letters.Lifetime(), replayed.Lifetime()),
	})
}

// parking is for how long a record may be parked. While it is, another one with its id, under another key, may have its
// effect, and must be known when the first is tried.
func (s spec) parking() keeping {
	return keeping{
		what: fmt.Sprintf("the Park of route %q keeps", s.name), kept: s.options.Park.WithDefaults().MaxAge, shorter: "lower Park.MaxAge",
	}
}

// callings are for how long a record can be called for after its first call, one after the other: it comes again for as
// long as its topic keeps it, is parked then, dies, is replayed for as long as its letter is kept, comes again for as long
// as the replay topic keeps it, and is parked once more. What dies again and is replayed again is not in it: nobody knows
// how often that is done.
func (c *Consumer) callings(s spec, found topics) (ks []keeping) {
	kept := func(topic string) bool {
		t, exists := found[topic]
		if exists {
			ks = append(ks, keeping{what: fmt.Sprintf("topic %q keeps", t.Name), kept: t.Lifetime()})
		}
		if s.parks() && topic != s.options.DeadLetterTopic {
			ks = append(ks, s.parking())
		}
		return exists
	}
	kept(s.topic)
	if _, replays := found[s.replay]; kept(s.options.DeadLetterTopic) && replays {
		kept(s.replay)
	}
	return ks
}

// together is one time after the other, for ever if one of them is.
func together(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return kafka.Forever
	}
	return add(a, b)
}

// retentionProblems finds topics that keep their records longer than the inbox would remember them.
func (c *Consumer) retentionProblems(found topics) []Problem {
	if c.cfg.InboxRetention <= 0 {
		return nil // for ever, or derived from these very topics
	}
	told := map[string]bool{}
	var ps []Problem
	for _, s := range c.specs {
		for _, k := range c.keepings(s, found) {
			if told[k.what] || k.kept >= 0 && k.kept <= c.cfg.InboxRetention {
				continue
			}
			told[k.what] = true
			ps = append(ps, Problem{
				What: fmt.Sprintf("InboxRetention %s is shorter than what %s, %s: a record could come again after it is forgotten",
					short(c.cfg.InboxRetention), k.what, forever(k.kept)),
				Fix: fmt.Sprintf("raise InboxRetention to %s, leave it 0, or %s", forever(k.kept), k.fix()),
			})
		}
	}
	return ps
}

// retention is how long a route's rows stay in the inbox, 0 for ever.
func (c *Consumer) retention(s spec, found topics) time.Duration {
	if c.cfg.InboxRetention != 0 {
		return max(c.cfg.InboxRetention, 0)
	}
	kept := c.longest(s, found)
	if kept < 0 {
		return 0
	}
	return add(kept, retentionSlack)
}

// longest is for how long a record of the route can come again.
func (c *Consumer) longest(s spec, found topics) (longest time.Duration) {
	for _, k := range c.keepings(s, found) {
		if k.kept < 0 {
			return kafka.Forever
		}
		longest = max(longest, k.kept)
	}
	return longest
}

// inputs are the topics that the consumer reads: the sources and their replay topics, each once.
func (c *Consumer) inputs() []string {
	names := c.sources()
	for _, source := range c.sources() {
		names = append(names, dlq.ReplayTopic(source, c.cfg.Group))
	}
	return names
}

// subscriptions are how many each input has: one for each route of a source, which all read its replay topic too.
func (c *Consumer) subscriptions() map[string]int {
	n := map[string]int{}
	for _, s := range c.specs {
		n[s.topic]++
		n[s.replay]++
	}
	return n
}

func forever(d time.Duration) string {
	if d < 0 {
		return "kafka.Forever"
	}
	return short(d)
}
