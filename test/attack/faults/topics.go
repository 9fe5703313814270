package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/load"
	"github.com/headrace/headrace/test/attack/member"
)

// topics are faults that an operator makes, or retention.
func topics() []Fault {
	return []Fault{
		{"topic-grows", Brokers, growTopic},
		{"topic-recreated", Brokers, recreateTopic},
		{"topic-cut-unread", Brokers, cutUnread},
		{"group-offsets-deleted", Consumers, deleteOffsets},
	}
}

// mostPartitions is how far a topic grows.
const mostPartitions = 12

// growTopic raises the number of partitions of a topic that is read and written, not that of its dead letters' or replays'.
func growTopic(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	name := s.Prefix + pick(rng, "orders", "offsets", "source", "events")
	details, err := s.Admin.ListTopics(ctx, name)
	if err != nil {
		return err
	}
	if n := len(details[name].Partitions); n > 0 && n < mostPartitions {
		grown, err := s.Admin.CreatePartitions(ctx, 1, name)
		if err := errors.Join(err, grown.Error()); err != nil {
			return err
		}
	}
	backoff.Wait(ctx, between(rng, time.Second, 5*time.Second))
	return nil
}

// recreateTopic deletes the fragile topic while it is read, and creates it again, perhaps with another number of partitions.
// What was not read of the old one is lost.
func recreateTopic(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	if err := fill(ctx, s, rng, member.Fragile(s.Prefix), 300); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, 0, 3*time.Second))
	ctx = context.WithoutCancel(ctx)
	name := member.Fragile(s.Prefix)
	if _, err := s.Admin.DeleteTopics(ctx, name); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, 0, 4*time.Second))
	if err := create(ctx, s, name, int32(1+rng.IntN(4))); err != nil {
		return err
	}
	return fill(ctx, s, rng, member.Fragile(s.Prefix), 300)
}

// create waits until the cluster has let go of the old one.
func create(ctx context.Context, s *lab.Site, name string, partitions int32) error {
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := s.Admin.CreateTopic(ctx, partitions, -1, nil, name)
		if err == nil || !errors.Is(err, kerr.TopicAlreadyExists) && !kerr.IsRetriable(err) || time.Now().After(deadline) {
			return err
		}
		backoff.Wait(ctx, 200*time.Millisecond)
	}
}

// cutUnread takes records away that nobody has read, as retention does behind a consumer that was away for long.
func cutUnread(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	up := len(s.Members.Running())
	err := s.Members.Scale(0)
	if err == nil {
		err = fillAndCut(context.WithoutCancel(ctx), s, rng)
	}
	err = errors.Join(err, s.Members.Scale(max(up, 1)))
	backoff.Wait(ctx, between(rng, 4*time.Second, 8*time.Second)) // or nobody would read the next one at all
	return err
}

func fillAndCut(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	if err := fill(ctx, s, rng, member.Fragile(s.Prefix), 300); err != nil {
		return err
	}
	ends, err := s.Admin.ListEndOffsets(ctx, member.Fragile(s.Prefix))
	if err != nil {
		return err
	}
	to := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) {
		to.AddOffset(o.Topic, o.Partition, max(o.Offset-int64(rng.IntN(50)), 0), -1)
	})
	_, err = s.Admin.DeleteRecords(ctx, to)
	return err
}

// deleteOffsets is a group that was away for longer than its offsets are kept: everything comes again.
func deleteOffsets(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	up := len(s.Members.Running())
	err := s.Members.Scale(0)
	ctx = context.WithoutCancel(ctx)
	for deadline := time.Now().Add(30 * time.Second); err == nil; { // members that were killed are in it for a session
		deleted, failed := s.Admin.DeleteGroups(ctx, s.Group)
		err = errors.Join(failed, deleted.Error())
		if err == nil || time.Now().After(deadline) {
			break
		}
		if errors.Is(err, kerr.NonEmptyGroup) || kerr.IsRetriable(err) {
			err = nil
		}
		backoff.Wait(ctx, 500*time.Millisecond)
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		err = nil
	}
	err = errors.Join(err, s.Members.Scale(max(up, 1)))
	backoff.Wait(ctx, between(rng, 4*time.Second, 8*time.Second))
	return err
}

// fill writes orders to a topic that no producer of the load writes to.
func fill(ctx context.Context, s *lab.Site, rng *rand.Rand, topic string, n int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers()...), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordDeliveryTimeout(time.Minute))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, load.Plain(rng, topic, n)...).FirstErr()
}
