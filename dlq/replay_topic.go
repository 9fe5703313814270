package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/kafka"
)

// ReplayNeeds are what a replay topic must be like, whoever makes it: the consumer that reads it refuses to start with
// less.
type ReplayNeeds struct {
	// Retention is that of the letters: one that was replayed must not be gone before the letter is, or a consumer that was
	// away would never see it and nobody could replay it again. 0 if there are no letters.
	Retention time.Duration
	// MaxMessageBytes has room for every letter, 0 if there are none.
	MaxMessageBytes int
	// MinISR makes what was replayed as safe as its letter, 0 if there are none.
	MinISR int
}

// NeedsOf are the needs of a replay topic for the letters of these dead letter topics.
func NeedsOf(letters ...kafka.Topic) (n ReplayNeeds) {
	for _, l := range letters {
		n.MaxMessageBytes, n.MinISR = max(n.MaxMessageBytes, l.MaxMessageBytes), max(n.MinISR, l.MinISR)
		if kept := l.Lifetime(); kept < 0 || n.Retention < 0 {
			n.Retention = kafka.Forever
		} else {
			n.Retention = max(n.Retention, kept)
		}
	}
	return n
}

// Spec is a replay topic for a source: as many partitions and replicas as that has, and what the letters need.
func (n ReplayNeeds) Spec(name string, source kafka.Topic) kafka.TopicSpec {
	spec := kafka.TopicSpec{
		Name: name, Partitions: source.Partitions, Replication: source.Replication,
		Retention: n.Retention, MaxMessageBytes: n.MaxMessageBytes,
		Configs: map[string]string{"cleanup.policy": "delete"},
	}
	if n.MinISR > 0 {
		spec.Configs["min.insync.replicas"] = strconv.Itoa(n.MinISR)
	}
	return spec
}

// check looks at a replay topic before the first letter goes there. What is wrong with it is told of each letter that
// would, and the letters of other topics go on; err is what they would meet too.
func (r *replayer) check(ctx context.Context, e *Entry, env Envelope, topic string) (unfit, err error) {
	if unfit, seen := r.unfit[topic]; seen {
		return unfit, nil
	}
	unfit = r.examine(ctx, e, env, topic)
	if unfit != nil && (ctx.Err() != nil || !ofTopic(unfit)) {
		return nil, cause(ctx, unfit)
	}
	r.unfit[topic] = unfit
	return unfit, nil
}

func (r *replayer) examine(ctx context.Context, e *Entry, env Envelope, topic string) error {
	found, err := r.admin.Topic(ctx, topic)
	switch {
	case errors.Is(err, kafka.ErrUnknownTopic) && !r.cfg.Create:
		return &NoReplayTopicError{Topic: topic, Group: env.Group, Err: err}
	case errors.Is(err, kafka.ErrUnknownTopic):
		return r.create(ctx, e, env, topic)
	case err != nil:
		return err
	case found.Compacted():
		return fmt.Errorf("replay topic %q: cleanup.policy is %q: %w", topic, found.CleanupPolicy, errCompacted)
	}
	return nil
}

// create makes a replay topic as the consumer would: in a dry run it only finds out whether it could be made.
func (r *replayer) create(ctx context.Context, e *Entry, env Envelope, topic string) error {
	source, err := r.admin.Topic(ctx, env.Origin.Topic)
	if errors.Is(err, kafka.ErrUnknownTopic) {
		return fmt.Errorf("replay topic %q cannot be created, because its source does not exist: %w", topic, err)
	}
	if err != nil {
		return err
	}
	letters, err := r.letterTopics(ctx, e, source)
	if err != nil || r.cfg.DryRun {
		return err
	}
	return r.admin.CreateTopic(ctx, NeedsOf(letters...).Spec(topic, source))
}

// letterTopics are the dead letter topics whose letters the consumer will expect in a replay topic: that which is read,
// and the source's default one. Letters of another system are in a topic that is none of the consumer's, so for these the
// default one counts as well where it does not exist yet, as the consumer would make it.
func (r *replayer) letterTopics(ctx context.Context, e *Entry, source kafka.Topic) ([]kafka.Topic, error) {
	read, err := r.admin.Topic(ctx, e.Topic)
	if err != nil {
		return nil, err
	}
	plan := Plan{Source: source.Name, Topic: DefaultTopic(source.Name)}
	letters, err := r.admin.Topic(ctx, plan.Topic)
	switch spec := plan.spec(source); {
	case errors.Is(err, kafka.ErrUnknownTopic) && e.Format == FormatHeadrace:
		return []kafka.Topic{read}, nil
	case errors.Is(err, kafka.ErrUnknownTopic):
		letters = kafka.Topic{Retention: spec.Retention, MaxMessageBytes: spec.MaxMessageBytes, MinISR: source.MinISR}
	case err != nil:
		return nil, err
	}
	return []kafka.Topic{read, letters}, nil
}

var errCompacted = errors.New("it keeps one letter of a key; set cleanup.policy=delete")

// ofTopic says whether an error is one of a topic, so that letters for another may go on.
func ofTopic(err error) bool {
	return slices.ContainsFunc([]error{
		errCompacted, kafka.ErrUnknownTopic, kerr.TopicAuthorizationFailed, kerr.InvalidTopicException, kerr.PolicyViolation,
		kerr.InvalidConfig, kerr.InvalidReplicationFactor, kerr.InvalidPartitions,
	}, func(target error) bool { return errors.Is(err, target) })
}
