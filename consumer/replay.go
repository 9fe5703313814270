package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/kafka"
)

// Each source topic has a replay topic beside it, "<topic>.<group>.replay": dead letters that are replayed go there, and
// not back into the source, where other consumer groups would see them. Every route reads it through the same stack as
// its source, and settles what belongs to another route as foreign.

// replaySuffix ends the names of all replay topics.
const replaySuffix = ".replay"

// replayHandler is the name of a route's second handler in the router. No route can have a name with a zero byte.
func replayHandler(route string) string { return route + "\x00replay" }

// isReplayTopic says whether a topic is named as a replay topic of the consumer group.
func (c Config) isReplayTopic(topic string) bool {
	return c.Group != "" && strings.HasSuffix(topic, dlq.ReplayTopic("", c.Group))
}

// replayNames finds what is wrong with the names that replaying needs.
func (c Config) replayNames(specs []spec) []Problem {
	ps := unstorable("Group", c.Group)
	for _, s := range specs {
		of := fmt.Sprintf("route %q", s.name)
		if over := len(s.replay) - maxTopic; over > 0 && s.topic != "" && impossibleTopic(s.topic) == "" {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s: the name of its replay topic %q has %d characters, Kafka takes %d", of, s.replay, len(s.replay), maxTopic),
				Fix:  fmt.Sprintf("shorten the names of the topic and the Group together by %d", over),
			})
		}
		if c.isReplayTopic(s.topic) {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s consumes %q, a replay topic of its own consumer group: a dead letter would be read twice, once as a record of its own", of, s.topic),
				Fix:  "consume the source topic: its routes get what is replayed to them without being told",
			})
		}
		if d := s.options.DeadLetterTopic; c.isReplayTopic(d) {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s has DeadLetterTopic %q, a replay topic of its own consumer group: what dies would come back at once, for ever", of, d),
				Fix:  "name another topic, or leave it empty",
			})
		}
	}
	return ps
}

// replayTopic is what the replay topic of one source must be like.
type replayTopic struct {
	name    string
	source  kafka.Topic
	letters []kafka.Topic // the dead letter topics whose letters may come: those that exist
}

// replayTopics are those of the sources that exist, each once.
func (c *Consumer) replayTopics(found topics) []replayTopic {
	var ts []replayTopic
	for _, name := range c.sources() {
		source, exists := found[name]
		if !exists {
			continue
		}
		t := replayTopic{name: dlq.ReplayTopic(name, c.cfg.Group), source: source}
		for _, s := range c.specs {
			if letters, exists := found[s.options.DeadLetterTopic]; exists && s.topic == name {
				t.letters = append(t.letters, letters)
			}
		}
		ts = append(ts, t)
	}
	return ts
}

// lookAtReplayTopics finds what is wrong with the replay topics, and adds those that exist to found. With create it
// creates missing ones if it may; without, one that Run would create is no problem.
func (c *Consumer) lookAtReplayTopics(ctx context.Context, cluster dlq.Topics, found topics, create bool) []Problem {
	var ps []Problem
	for _, want := range c.replayTopics(found) {
		have, err := cluster.Topic(ctx, want.name)
		missing := errors.Is(err, kafka.ErrUnknownTopic)
		if missing && c.cfg.CreateDeadLetterTopics && !create {
			continue
		}
		if missing && c.cfg.CreateDeadLetterTopics {
			have, err = want.create(ctx, cluster)
		}
		if err != nil {
			ps = append(ps, want.unusable(because(ctx, err)))
			continue
		}
		found[want.name] = have
		ps = append(ps, want.compare(have)...)
	}
	return ps
}

func (t replayTopic) create(ctx context.Context, cluster dlq.Topics) (kafka.Topic, error) {
	if err := cluster.CreateTopic(ctx, t.needs().Spec(t.name, t.source)); err != nil {
		return kafka.Topic{}, err
	}
	return cluster.Topic(ctx, t.name)
}

func (t replayTopic) needs() dlq.ReplayNeeds { return dlq.NeedsOf(t.letters...) }

func (t replayTopic) compare(have kafka.Topic) []Problem {
	var ps []Problem
	needs := t.needs()
	refuse := func(bad bool, what, fix string) {
		if bad {
			ps = append(ps, Problem{What: t.String() + ": " + what, Fix: fix})
		}
	}
	if need := needs.Retention; need != 0 {
		refuse(have.Retention >= 0 && (need < 0 || have.Retention < need),
			fmt.Sprintf("its records are deleted after %s, dead letters only after %s: what was replayed could be gone before the letter is",
				short(have.Retention), forever(need)),
			"set retention.ms="+retentionMillis(need))
	}
	refuse(have.MaxMessageBytes < needs.MaxMessageBytes,
		fmt.Sprintf("max.message.bytes is %d, that of the dead letters %d", have.MaxMessageBytes, needs.MaxMessageBytes),
		fmt.Sprintf("set max.message.bytes=%d", needs.MaxMessageBytes))
	refuse(have.Compacted(),
		fmt.Sprintf("cleanup.policy is %q, which keeps one record of a key", have.CleanupPolicy), "set cleanup.policy=delete")
	refuse(have.MinISR < needs.MinISR,
		fmt.Sprintf("min.insync.replicas is %d, that of the dead letters %d: what was replayed would be less safe than its letter", have.MinISR, needs.MinISR),
		fmt.Sprintf("set min.insync.replicas=%d", needs.MinISR))
	return ps
}

func (t replayTopic) unusable(err error) Problem {
	if errors.Is(err, kafka.ErrUnknownTopic) {
		return Problem{
			What: t.String() + " does not exist: dead letters are replayed through it",
			Fix:  "create it with Config.CreateDeadLetterTopics, or by hand: " + t.byHand(),
		}
	}
	if errors.Is(err, errSilent) {
		return Problem{What: t.String() + " cannot be used", Err: err, Fix: "see that the brokers are up, and not too busy to create it"}
	}
	return Problem{
		What: t.String() + " cannot be used", Err: err,
		Fix: fmt.Sprintf("allow this user Read, Describe and DescribeConfigs on %q (Create too, if it is to be created), or create it by hand: %s", t.name, t.byHand()),
	}
}

// byHand is what to say to the tool that creates topics.
func (t replayTopic) byHand() string {
	text := fmt.Sprintf("%s, cleanup.policy=delete", plural(t.source.Partitions, "partition"))
	if len(t.letters) == 0 {
		return text + ", retention.ms and max.message.bytes of its dead letter topic"
	}
	needs := t.needs()
	if needs.Retention != 0 {
		text += ", retention.ms=" + retentionMillis(needs.Retention)
	}
	if needs.MaxMessageBytes > 0 {
		text += fmt.Sprintf(", max.message.bytes=%d", needs.MaxMessageBytes)
	}
	return text
}

func (t replayTopic) String() string {
	return fmt.Sprintf("replay topic %q of %q", t.name, t.source.Name)
}

func retentionMillis(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}
