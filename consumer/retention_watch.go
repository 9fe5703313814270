package consumer

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headrace/headrace/kafka"
)

// retentionInterval is between two looks at what the topics keep.
const retentionInterval = 10 * time.Minute

// watchRetention keeps topic_retention_seconds up to date until ctx ends, and says when a topic begins to keep its
// records longer than the inbox was told at start. found is what start saw.
func (c *Consumer) watchRetention(ctx context.Context, found topics) {
	c.showRetention(found)
	defer c.metrics.retention.Reset()
	tick := time.NewTicker(retentionInterval)
	defer tick.Stop()
	for was := found; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, err := c.askRetention(ctx)
		if err != nil {
			c.cfg.Logger.DebugContext(ctx, "what the topics keep is not known", "error", err)
			continue
		}
		c.tellLonger(found, was, now)
		c.showRetention(now)
		was = now
	}
}

func (c *Consumer) showRetention(found topics) {
	for _, name := range c.inputs() {
		if t, known := found[name]; known {
			c.metrics.retention.WithLabelValues(name).Set(seconds(t.Lifetime()))
		}
	}
}

// seconds is +Inf for ever: whatever is divided by it is nothing.
func seconds(kept time.Duration) float64 {
	if kept < 0 {
		return math.Inf(1)
	}
	return kept.Seconds()
}

func (c *Consumer) askRetention(ctx context.Context) (topics, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	admin, err := kafka.NewAdmin(c.cfg.client())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	found := topics{}
	for _, name := range c.remembered() {
		t, err := admin.Topic(ctx, name)
		if err != nil {
			return nil, err
		}
		found[name] = t
	}
	return found, nil
}

// remembered are the topics whose records must not be forgotten: what is read, and the dead letter topics.
func (c *Consumer) remembered() []string {
	names := c.inputs()
	for _, s := range c.specs {
		names = append(names, s.options.DeadLetterTopic)
	}
	return names
}

// tellLonger warns of a route whose inbox forgets before its topics do, once a change: its retention is that of the
// start.
func (c *Consumer) tellLonger(start, was, now topics) {
	for _, s := range c.specs {
		remembered, kept := c.retention(s, start), c.longest(s, now)
		if remembered > 0 && (kept < 0 || kept > remembered) && kept != c.longest(s, was) {
			c.cfg.Logger.Warn(fmt.Sprintf("route %q: its topics keep their records longer than at start, and its inbox forgets after %s: "+
				"restart the process before a record can come again after it is forgotten", s.name, short(remembered)), "route", s.name)
		}
	}
}
