package dlq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/kafka"
)

const (
	// defaultRetention of a dead letter topic that is created: two weeks, so that a holiday loses none.
	defaultRetention = 14 * 24 * time.Hour
	// leastRetention is what a dead letter topic must have: less is gone before anybody looks.
	leastRetention = 24 * time.Hour
)

// Topics is what Check needs of the cluster. *kafka.Admin is one.
type Topics interface {
	// Topic says what the cluster knows of a topic; the error wraps kafka.ErrUnknownTopic if there is none.
	Topic(ctx context.Context, name string) (kafka.Topic, error)
	// CreateTopic creates one; one that exists is no error.
	CreateTopic(ctx context.Context, spec kafka.TopicSpec) error
}

var _ Topics = (*kafka.Admin)(nil)

// Plan is a source topic and where its dead letters are to go.
type Plan struct {
	// Source is the topic that is consumed. Required.
	Source string
	// Topic is its dead letter topic. Defaults to DefaultTopic, except for a source that is itself a dead letter topic: that
	// must name another.
	Topic string
	// Create says that a missing dead letter topic is to be created like its source: as many partitions and replicas, the
	// same min.insync.replicas, and room for the envelope.
	Create bool
	// Retention of a topic that is created, kafka.Forever for never. One that exists must have at least as much if it is
	// set, and a day in any case.
	//
	// Defaults to 14 days.
	Retention time.Duration
}

// Check says whether every plan's dead letter topic can take what its source can hold. It creates missing topics where
// the plan says so. Everything that is wrong is in one *CheckError; another error means that the cluster did not answer.
func Check(ctx context.Context, topics Topics, plans ...Plan) error {
	var found []Problem
	for _, p := range plans {
		problems, err := p.check(ctx, topics)
		if err != nil {
			return fmt.Errorf("check dead letter topic of %q: %w", p.Source, err)
		}
		found = append(found, problems...)
	}
	if found == nil {
		return nil
	}
	return &CheckError{Problems: found}
}

// Check checks the dead letter topic of one source as this Writer names it; see the function Check. create lets it
// create the topic.
func (w *Writer) Check(ctx context.Context, source string, create bool) error {
	admin, err := kafka.NewAdmin(w.cfg.Client)
	if err != nil {
		return err
	}
	defer admin.Close()
	plan := Plan{Source: source, Create: create}
	if w.cfg.Topic != nil {
		plan.Topic = w.cfg.Topic(source)
	}
	return Check(ctx, admin, plan)
}

// check gives the plan's problems; the error is one of the cluster.
func (p Plan) check(ctx context.Context, topics Topics) ([]Problem, error) {
	if p.Topic == "" {
		if isDeadLetterTopic(p.Source) {
			p.Topic = "?"
			return p.problem("the source is itself a dead letter topic", "name a dead letter topic for it"), nil
		}
		p.Topic = DefaultTopic(p.Source)
	}
	if p.Topic == p.Source {
		return p.problem("its dead letters would be its own input", "name another dead letter topic"), nil
	}
	source, err := topics.Topic(ctx, p.Source)
	if err != nil {
		return p.unreadable(p.Source, err)
	}
	letters, err := p.find(ctx, topics, source)
	if err != nil {
		return p.unreadable(p.Topic, err)
	}
	return p.compare(source, letters), nil
}

// find looks for the dead letter topic and creates it where it may.
func (p Plan) find(ctx context.Context, topics Topics, source kafka.Topic) (kafka.Topic, error) {
	letters, err := topics.Topic(ctx, p.Topic)
	if !errors.Is(err, kafka.ErrUnknownTopic) || !p.Create {
		return letters, err
	}
	if err := topics.CreateTopic(ctx, p.spec(source)); err != nil {
		return kafka.Topic{}, err
	}
	return topics.Topic(ctx, p.Topic)
}

func (p Plan) spec(source kafka.Topic) kafka.TopicSpec {
	spec := kafka.TopicSpec{
		Name:            p.Topic,
		Partitions:      source.Partitions,
		Replication:     source.Replication,
		Retention:       p.Retention,
		MaxMessageBytes: source.MaxMessageBytes + MaxEnvelope,
		Configs:         map[string]string{"cleanup.policy": "delete"},
	}
	if spec.Retention == 0 {
		spec.Retention = defaultRetention
	}
	if source.MinISR > 0 {
		spec.Configs["min.insync.replicas"] = strconv.Itoa(source.MinISR)
	}
	return spec
}

// unreadable makes a problem of what the cluster says about one topic. Anything else ends the check.
func (p Plan) unreadable(topic string, err error) ([]Problem, error) {
	switch {
	case errors.Is(err, kafka.ErrUnknownTopic) && topic == p.Topic:
		return p.problem("the dead letter topic does not exist", "create it, or let it be created"), nil
	case errors.Is(err, kafka.ErrUnknownTopic):
		return p.problem("the source topic does not exist", "create it"), nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return p.problem(err.Error(), fmt.Sprintf("allow Describe and DescribeConfigs on %s, and Write on %s (Create too, "+
			"if it is to be created)", topic, p.Topic)), nil
	case errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.PolicyViolation),
		errors.Is(err, kerr.InvalidConfig), errors.Is(err, kerr.InvalidReplicationFactor):
		return p.problem(err.Error(), "create it by hand, or name another"), nil
	default:
		return nil, err
	}
}

func (p Plan) problem(what, fix string) []Problem {
	return []Problem{{Source: p.Source, Topic: p.Topic, What: what, Fix: fix}}
}

// compare is every rule about two topics that exist.
func (p Plan) compare(source, letters kafka.Topic) []Problem {
	var found []Problem
	refuse := func(bad bool, what, fix string) {
		if bad {
			found = append(found, p.problem(what, fix)...)
		}
	}
	room, have := source.MaxMessageBytes+MaxEnvelope, letters.MaxMessageBytes
	refuse(have < room,
		fmt.Sprintf("max.message.bytes is %d, but the source takes %d and the envelope up to %d more", have, source.MaxMessageBytes, MaxEnvelope),
		fmt.Sprintf("set max.message.bytes=%d", room))
	// A letter without a key is refused by a compacted topic; of those with one, only the latest of a key would stay.
	refuse(letters.Compacted(),
		fmt.Sprintf("cleanup.policy is %q, which keeps one letter of a key", letters.CleanupPolicy),
		"set cleanup.policy=delete")
	refuse(letters.MinISR < source.MinISR,
		fmt.Sprintf("min.insync.replicas is %d, the source's %d: a letter would be less safe than its record", letters.MinISR, source.MinISR),
		fmt.Sprintf("set min.insync.replicas=%d", source.MinISR))
	refuse(letters.MinISR > letters.Replication,
		fmt.Sprintf("min.insync.replicas is %d with %d replicas: no write is ever confirmed", letters.MinISR, letters.Replication),
		fmt.Sprintf("add replicas, or set min.insync.replicas=%d", letters.Replication))
	least := max(p.Retention, leastRetention)
	if p.Retention == kafka.Forever {
		least = kafka.Forever
	}
	refuse(outlived(letters.Retention, least),
		fmt.Sprintf("letters are deleted after %s", letters.Retention),
		"set retention.ms="+retentionMillis(least))
	return found
}

func retentionMillis(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// outlived says whether a retention ends before another; negative ones never end.
func outlived(have, want time.Duration) bool {
	return have >= 0 && (want < 0 || have < want)
}
