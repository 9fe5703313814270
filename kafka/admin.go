package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// adminMetadataAge is the least that the client takes. It answers from what it knows until then, by its default for five
// seconds: deleted -> created again -> asked for its id, it would give the old one.
const adminMetadataAge = 10 * time.Millisecond

// visiblePoll is how often CreateTopic asks whether the brokers know the new topic yet.
const visiblePoll = 100 * time.Millisecond

// Admin asks and changes what the cluster knows about topics. It is safe for concurrent use and must be closed by whoever
// made it. Every call ends with its context.
type Admin struct {
	client *kgo.Client
	adm    *kadm.Client
}

// NewAdmin makes an Admin with connections of its own. It does not reach for the cluster yet.
func NewAdmin(cfg ClientConfig) (*Admin, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(cfg.Options(), kgo.MetadataMinAge(adminMetadataAge))...)
	if err != nil {
		return nil, fmt.Errorf("admin client: %w", err)
	}
	return &Admin{client: cl, adm: kadm.NewClient(cl)}, nil
}

// Close ends the connections.
func (a *Admin) Close() { a.adm.Close() }

// Ping asks the brokers one after the other until one answers, once each: its error is that of the connection, where the
// other calls try again and have only the end of their context to tell.
func (a *Admin) Ping(ctx context.Context) error { return a.client.Ping(ctx) }

// Topic says what the cluster knows about a topic. It needs the permissions Describe and DescribeConfigs on it. The error
// wraps ErrUnknownTopic if there is no such topic, which no broker knows then; one that only some know yet is waited for.
func (a *Admin) Topic(ctx context.Context, name string) (Topic, error) {
	tick := time.NewTicker(visiblePoll)
	defer tick.Stop()
	for {
		t, err := a.topic(ctx, name)
		if !errors.Is(err, ErrUnknownTopic) {
			return t, err
		}
		if known, failed := a.anybodyKnows(ctx, name); !known {
			return Topic{}, errors.Join(err, failed)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Topic{}, fmt.Errorf("topic %q is not known to all brokers yet: %w", name, context.Cause(ctx))
		}
	}
}

func (a *Admin) topic(ctx context.Context, name string) (Topic, error) {
	detail, err := a.detail(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	configs, err := a.configs(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	return Topic{
		Name:            name,
		ID:              uuid.UUID(detail.ID),
		Partitions:      len(detail.Partitions),
		Replication:     detail.Partitions.NumReplicas(),
		Retention:       retention(configs["retention.ms"]),
		MaxMessageBytes: number(configs["max.message.bytes"]),
		CleanupPolicy:   configs["cleanup.policy"],
		MinISR:          number(configs["min.insync.replicas"]),
	}, nil
}

// TopicIDs gives the ids of topics, by name. It needs the permission Describe only.
func (a *Admin) TopicIDs(ctx context.Context, names ...string) (map[string]uuid.UUID, error) {
	if len(names) == 0 {
		return map[string]uuid.UUID{}, nil // asked with no name, the cluster answers with all
	}
	details, err := a.adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("ids of topics %s: %w", strings.Join(names, ", "), err)
	}
	ids := make(map[string]uuid.UUID, len(names))
	for _, name := range names {
		if err := topicError(name, details[name].Err); err != nil {
			return nil, err
		}
		ids[name] = uuid.UUID(details[name].ID)
	}
	return ids, nil
}

// StartOffsets gives the offset of the oldest record of each partition.
func (a *Admin) StartOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return offsets(topic)(a.adm.ListStartOffsets(ctx, topic))
}

// EndOffsets gives for each partition the offset that the next record will have.
func (a *Admin) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	return offsets(topic)(a.adm.ListEndOffsets(ctx, topic))
}

// CreateTopic creates a topic and waits until all brokers know it. One that exists already is no error and stays as it
// is.
func (a *Admin) CreateTopic(ctx context.Context, spec TopicSpec) error {
	ready, created := known, kadm.TopicID{}
	tick := time.NewTicker(visiblePoll)
	defer tick.Stop()
	for isNew := false; ; {
		if !isNew { // again, where it exists and no broker knows it: made by another this moment, or being deleted
			id, err := a.create(ctx, spec)
			if isNew = err == nil; isNew {
				created = id
				ready = func(d kadm.TopicDetail) bool { return writable(d) && (d.ID == id || id == kadm.TopicID{}) }
			} else if !errors.Is(err, kerr.TopicAlreadyExists) {
				return err
			}
		}
		// The controller answers before the brokers have heard of it: created -> a producer asks another broker -> unknown
		// topic, or the one before it that was deleted.
		detail, err := a.detail(ctx, spec.Name)
		if err == nil && ready(detail) {
			if all, err := a.everybodyKnows(ctx, spec.Name, created); all || err != nil {
				return err
			}
		}
		if err != nil && !errors.Is(err, ErrUnknownTopic) && !kerr.IsRetriable(err) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("created topic %q is not known to the brokers yet: %w", spec.Name, context.Cause(ctx))
		}
	}
}

// create asks for the topic once. The id is zero before Kafka 2.8.
func (a *Admin) create(ctx context.Context, spec TopicSpec) (kadm.TopicID, error) {
	rsp, err := a.adm.CreateTopic(ctx, orDefault(spec.Partitions), int16(orDefault(spec.Replication)), spec.configs(), spec.Name)
	switch {
	case err != nil && rsp.ErrMessage != "":
		return kadm.TopicID{}, fmt.Errorf("create topic %q: %w (%s)", spec.Name, err, rsp.ErrMessage)
	case err != nil:
		return kadm.TopicID{}, fmt.Errorf("create topic %q: %w", spec.Name, err)
	}
	return rsp.ID, nil
}

func known(d kadm.TopicDetail) bool { return len(d.Partitions) > 0 }

func writable(d kadm.TopicDetail) bool {
	for _, p := range d.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return known(d)
}

func (a *Admin) detail(ctx context.Context, name string) (kadm.TopicDetail, error) {
	details, err := a.adm.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, fmt.Errorf("describe topic %q: %w", name, err)
	}
	detail, ok := details[name]
	if !ok {
		return kadm.TopicDetail{}, topicError(name, kerr.UnknownTopicOrPartition)
	}
	return detail, topicError(name, detail.Err)
}

func (a *Admin) configs(ctx context.Context, name string) (map[string]string, error) {
	all, err := a.adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("configs of topic %q: %w", name, err)
	}
	found, err := all.On(name, func(rc *kadm.ResourceConfig) error { return rc.Err })
	if err != nil {
		return nil, topicError(name, err)
	}
	configs := make(map[string]string, len(found.Configs))
	for _, c := range found.Configs {
		configs[c.Key] = c.MaybeValue()
	}
	return configs, nil
}

// topicError says what a broker's error means for a topic; nil stays nil.
func topicError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%w %q", ErrUnknownTopic, name)
	default:
		return fmt.Errorf("topic %q: %w", name, err)
	}
}

func offsets(topic string) func(kadm.ListedOffsets, error) (map[int32]int64, error) {
	return func(listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
		if err == nil {
			err = listed.Error()
		}
		if err != nil {
			return nil, topicError(topic, err)
		}
		byPartition := make(map[int32]int64, len(listed[topic]))
		for p, o := range listed[topic] {
			byPartition[p] = o.Offset
		}
		return byPartition, nil
	}
}
