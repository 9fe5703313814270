package kafka_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
)

func admin(t *testing.T, client kafka.ClientConfig) *kafka.Admin {
	t.Helper()
	a, err := kafka.NewAdmin(client)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	t.Run("ACreatedTopicIsAsSpecified", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t)
		a := admin(t, client)
		spec := kafka.TopicSpec{
			Name: "t", Partitions: 3, Replication: 1, Retention: 36 * time.Hour, MaxMessageBytes: 2_000_000,
			Configs: map[string]string{"cleanup.policy": "delete", "min.insync.replicas": "1"},
		}
		require.NoError(t, a.CreateTopic(t.Context(), spec))
		got, err := a.Topic(t.Context(), "t")
		require.NoError(t, err)
		require.NotEqual(t, uuid.Nil, got.ID)
		got.ID = uuid.Nil
		require.Equal(t, kafka.Topic{
			Name: "t", Partitions: 3, Replication: 1, Retention: 36 * time.Hour, MaxMessageBytes: 2_000_000,
			CleanupPolicy: "delete", MinISR: 1,
		}, got)
		require.False(t, got.Compacted())
	})

	t.Run("ATopicThatExistsStaysAsItIs", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		require.NoError(t, fake.CreateTopic("t", 2, map[string]string{"retention.ms": "-1", "cleanup.policy": "compact,delete"}))
		a := admin(t, client)
		require.NoError(t, a.CreateTopic(t.Context(), kafka.TopicSpec{Name: "t", Partitions: 9}))
		got, err := a.Topic(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, 2, got.Partitions)
		require.Equal(t, kafka.Forever, got.Retention)
		require.True(t, got.Compacted())
	})

	// created by another process -> a broker that has not heard of it is asked -> unknown topic
	t.Run("ATopicThatAnotherHasJustMadeIsWaitedFor", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		require.NoError(t, fake.CreateTopic("t", 2, nil))
		unheard := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.UnknownTopicOrPartition, Count: 2})
		a := admin(t, client)
		require.NoError(t, a.CreateTopic(t.Context(), kafka.TopicSpec{Name: "t"}))
		require.Equal(t, 2, unheard.Hits())
		_, err := a.Topic(t.Context(), "t")
		require.NoError(t, err)
	})

	// deleted -> created before the controller has done it -> it exists -> it does not
	t.Run("ATopicThatIsBeingDeletedIsCreatedOnceItHasGone", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		going := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "t", Err: kerr.TopicAlreadyExists, Count: 2})
		a := admin(t, client)
		require.NoError(t, a.CreateTopic(t.Context(), kafka.TopicSpec{Name: "t", Partitions: 3}))
		require.Equal(t, 2, going.Hits())
		got, err := a.Topic(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, 3, got.Partitions)
	})

	t.Run("AMemberThatStartsBesideOthersFindsTheTopicThatTheyMake", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t)
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			a := admin(t, client)
			wg.Go(func() {
				if _, err := a.Topic(t.Context(), "t"); !errors.Is(err, kafka.ErrUnknownTopic) && err != nil {
					errs[i] = err
					return
				}
				errs[i] = a.CreateTopic(t.Context(), kafka.TopicSpec{Name: "t", Partitions: 3})
				if errs[i] == nil {
					_, errs[i] = a.Topic(t.Context(), "t")
				}
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
	})

	t.Run("WhatIsNotSpecifiedIsTheClusters", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.DefaultNumPartitions(5))
		a := admin(t, client)
		require.NoError(t, a.CreateTopic(t.Context(), kafka.TopicSpec{Name: "t", Retention: kafka.Forever}))
		got, err := a.Topic(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, 5, got.Partitions)
		require.Equal(t, kafka.Forever, got.Retention)
		require.Positive(t, got.MaxMessageBytes)
	})

	t.Run("AnUnknownTopicIsSaidToBe", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t)
		a := admin(t, client)
		_, err := a.Topic(t.Context(), "nowhere")
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)
		require.EqualError(t, err, `unknown topic "nowhere"`)
		_, err = a.TopicIDs(t.Context(), "nowhere")
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)
		_, err = a.EndOffsets(t.Context(), "nowhere")
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)
	})

	t.Run("AMissingPermissionIsNamed", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t"))
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
		_, err := admin(t, client).Topic(t.Context(), "t")
		require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
		require.ErrorContains(t, err, `"t"`)
	})

	t.Run("ARefusedCreationIsAnError", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "t", Err: kerr.PolicyViolation})
		err := admin(t, client).CreateTopic(t.Context(), kafka.TopicSpec{Name: "t"})
		require.ErrorIs(t, err, kerr.PolicyViolation)
		require.ErrorContains(t, err, `create topic "t"`)
	})

	t.Run("IDsDifferOnceATopicIsCreatedAgain", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t", "u"))
		a := admin(t, client)
		before, err := a.TopicIDs(t.Context(), "t", "u")
		require.NoError(t, err)
		require.NoError(t, fake.DeleteTopic("t"))
		require.NoError(t, fake.CreateTopic("t", 1, nil))
		require.Eventually(t, func() bool { // the client answers from memory for some milliseconds
			after, err := a.TopicIDs(t.Context(), "t", "u")
			return err == nil && before["t"] != after["t"] && before["u"] == after["u"]
		}, patience, 10*time.Millisecond)
		none, err := a.TopicIDs(t.Context())
		require.NoError(t, err)
		require.Empty(t, none)
	})

	t.Run("OffsetsAreOfEachPartition", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(2, "t"))
		one := int32(1)
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		rec := kafka.ProducerRecord{Topic: "t", Partition: &one}
		require.NoError(t, pub.PublishRecords(t.Context(), rec))
		require.NoError(t, pub.PublishRecords(t.Context(), rec))
		require.NoError(t, fake.DeleteRecords("t", 1, 1))
		a := admin(t, client)
		start, err := a.StartOffsets(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, map[int32]int64{0: 0, 1: 1}, start)
		end, err := a.EndOffsets(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, map[int32]int64{0: 0, 1: 2}, end)
	})

	t.Run("CreationWaitsUntilTheBrokersKnow", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		late := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.UnknownTopicOrPartition, Count: 2})
		require.NoError(t, admin(t, client).CreateTopic(t.Context(), kafka.TopicSpec{Name: "t"}))
		require.Equal(t, 2, late.Hits())
	})

	// created -> one broker knows it, and is asked -> the next question goes to another -> unknown topic
	t.Run("CreationWaitsUntilTheLastBrokerKnows", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.NumBrokers(3))
		late := fake.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Metadata}, Nodes: []int32{2}, Topic: "t", Err: kerr.UnknownTopicOrPartition, Count: 3,
		})
		require.NoError(t, admin(t, client).CreateTopic(t.Context(), kafka.TopicSpec{Name: "t"}))
		require.Equal(t, 3, late.Hits())
	})

	t.Run("ATopicThatOneBrokerHasNotHeardOfIsNoUnknownOne", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "t"))
		unheard := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.UnknownTopicOrPartition})
		noConfigs := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "t", Err: kerr.UnknownTopicOrPartition})
		got, err := admin(t, client).Topic(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, 2, got.Partitions)
		require.Equal(t, 1, unheard.Hits())
		require.Equal(t, 1, noConfigs.Hits())
	})

	t.Run("CreationEndsWithItsContext", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		never := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.UnknownTopicOrPartition, Count: -1})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = never.Wait(t.Context(), 2)
			cancel()
		}()
		err := admin(t, client).CreateTopic(ctx, kafka.TopicSpec{Name: "t"})
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("NoBrokersAreRefused", func(t *testing.T) {
		t.Parallel()
		_, err := kafka.NewAdmin(kafka.ClientConfig{})
		require.ErrorIs(t, err, kafka.ErrNoBrokers)
	})
}
