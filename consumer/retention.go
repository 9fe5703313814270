package consumer

import (
	"fmt"
	"strings"
	"time"

	"github.com/headrace/headrace/kafka"
)

// lifetime is how long a topic's records can be delivered: compaction alone deletes nothing by age.
func lifetime(t kafka.Topic) time.Duration {
	if t.Retention < 0 || t.Compacted() && !strings.Contains(t.CleanupPolicy, "delete") {
		return kafka.Forever
	}
	return t.Retention
}

// retentionProblems finds topics that keep their records longer than the inbox would remember them.
func (c *Consumer) retentionProblems(found topics) []Problem {
	if c.cfg.InboxRetention <= 0 {
		return nil // for ever, or derived from these very topics
	}
	var ps []Problem
	for _, name := range c.remembered() {
		t, exists := found[name]
		if kept := lifetime(t); exists && (kept < 0 || kept > c.cfg.InboxRetention) {
			ps = append(ps, Problem{
				What: fmt.Sprintf("InboxRetention %s is shorter than what topic %q keeps, %s: a record could come again after it is forgotten",
					short(c.cfg.InboxRetention), name, forever(kept)),
				Fix: fmt.Sprintf("raise InboxRetention to %s, leave it 0, or shorten the topic's retention.ms", forever(kept)),
			})
		}
	}
	return ps
}

// remembered are the topics whose records must not be forgotten: the sources and their dead letter topics, each once.
func (c *Consumer) remembered() []string {
	names := c.sources()
	seen := map[string]bool{}
	for _, n := range names {
		seen[n] = true
	}
	for _, s := range c.specs {
		if d := s.options.DeadLetterTopic; !seen[d] {
			seen[d] = true
			names = append(names, d)
		}
	}
	return names
}

// retention is how long a route's rows stay in the inbox, 0 for ever.
func (c *Consumer) retention(s spec, found topics) time.Duration {
	if c.cfg.InboxRetention != 0 {
		return max(c.cfg.InboxRetention, 0)
	}
	longest := time.Duration(0)
	for _, name := range []string{s.topic, s.options.DeadLetterTopic} {
		kept := lifetime(found[name])
		if kept < 0 {
			return 0
		}
		longest = max(longest, kept)
	}
	return longest + retentionSlack
}

func forever(d time.Duration) string {
	if d < 0 {
		return "kafka.Forever"
	}
	return short(d)
}
