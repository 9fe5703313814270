package dlq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
)

func adminOf(t *testing.T, brokers []string) *kafka.Admin {
	t.Helper()
	a, err := kafka.NewAdmin(clientOf(brokers))
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

// found gives the problems that a check found.
func found(t *testing.T, err error) []dlq.Problem {
	t.Helper()
	var check *dlq.CheckError
	require.ErrorAs(t, err, &check)
	return check.Problems
}

// known is a cluster that knows these topics and creates none.
type known map[string]kafka.Topic

func (k known) Topic(_ context.Context, name string) (kafka.Topic, error) {
	if t, ok := k[name]; ok {
		return t, nil
	}
	return kafka.Topic{}, kafka.ErrUnknownTopic
}

func (k known) CreateTopic(context.Context, kafka.TopicSpec) error { return kerr.PolicyViolation }

// good is a source and a dead letter topic that fits it.
func good() (source, letters kafka.Topic) {
	source = kafka.Topic{
		Partitions: 3, Replication: 3, MinISR: 2, MaxMessageBytes: 1_048_588, CleanupPolicy: "compact", Retention: kafka.Forever,
	}
	letters = kafka.Topic{
		Partitions: 1, Replication: 3, MinISR: 2, MaxMessageBytes: 1_048_588 + dlq.MaxEnvelope, CleanupPolicy: "delete", Retention: 24 * time.Hour,
	}
	return source, letters
}

func TestCheck(t *testing.T) {
	t.Parallel()
	t.Run("OneThatFitsPasses", func(t *testing.T) {
		t.Parallel()
		source, letters := good()
		require.NoError(t, dlq.Check(t.Context(), known{"orders": source, "orders.dlq": letters}, dlq.Plan{Source: "orders"}))
		letters.Retention = kafka.Forever
		require.NoError(t, dlq.Check(t.Context(), known{"orders": source, "orders.dlq": letters}, dlq.Plan{Source: "orders", Retention: 90 * 24 * time.Hour}))
		require.NoError(t, dlq.Check(t.Context(), known{}))
	})

	t.Run("EveryFaultIsFoundWithItsValueAndItsFix", func(t *testing.T) {
		t.Parallel()
		for what, c := range map[string]struct {
			spoil func(source, letters *kafka.Topic, plan *dlq.Plan)
			fix   string
		}{
			"max.message.bytes is 1048588, but the source takes 1048588": {
				func(_, l *kafka.Topic, _ *dlq.Plan) { l.MaxMessageBytes = 1_048_588 }, "set max.message.bytes=1114124",
			},
			`cleanup.policy is "compact,delete"`: {
				func(_, l *kafka.Topic, _ *dlq.Plan) { l.CleanupPolicy = "compact,delete" }, "set cleanup.policy=delete",
			},
			"min.insync.replicas is 1, the source's 2": {
				func(_, l *kafka.Topic, _ *dlq.Plan) { l.MinISR = 1 }, "set min.insync.replicas=2",
			},
			"min.insync.replicas is 2 with 1 replicas": {
				func(_, l *kafka.Topic, _ *dlq.Plan) { l.Replication = 1 }, "set min.insync.replicas=1",
			},
			"letters are deleted after 1h0m0s": {
				func(_, l *kafka.Topic, _ *dlq.Plan) { l.Retention = time.Hour }, "set retention.ms=86400000",
			},
			"letters are deleted after 24h0m0s": {
				func(_, _ *kafka.Topic, p *dlq.Plan) { p.Retention = kafka.Forever }, "set retention.ms=-1",
			},
			"letters are deleted after 240h0m0s": {
				func(_, l *kafka.Topic, p *dlq.Plan) { l.Retention, p.Retention = 240*time.Hour, 480*time.Hour }, "set retention.ms=1728000000",
			},
		} {
			source, letters := good()
			plan := dlq.Plan{Source: "orders"}
			c.spoil(&source, &letters, &plan)
			problems := found(t, dlq.Check(t.Context(), known{"orders": source, "orders.dlq": letters}, plan))
			require.Len(t, problems, 1, what)
			require.Contains(t, problems[0].What, what)
			require.Contains(t, problems[0].Fix, c.fix)
		}
	})

	t.Run("AllProblemsOfAllPlansComeAtOnce", func(t *testing.T) {
		t.Parallel()
		source, letters := good()
		letters.MinISR, letters.CleanupPolicy = 1, "compact"
		err := dlq.Check(
			t.Context(), known{"orders": source, "orders.dlq": letters},
			dlq.Plan{Source: "orders"},
			dlq.Plan{Source: "orders", Topic: "orders"},
			dlq.Plan{Source: "orders.dlq"},
			dlq.Plan{Source: "payments"},
			dlq.Plan{Source: "orders", Topic: "elsewhere"},
			dlq.Plan{Source: "orders", Topic: "elsewhere", Create: true},
		)
		require.Len(t, found(t, err), 7)
		for _, part := range []string{
			"7 problems", "keeps one letter of a key", "less safe", "its own input", "is itself a dead letter topic",
			"payments -> payments.dlq: the source topic does not exist", "orders -> elsewhere: the dead letter topic does not exist", "POLICY_VIOLATION",
		} {
			require.ErrorContains(t, err, part)
		}
		var check *dlq.CheckError
		require.ErrorAs(t, err, &check)
		require.Contains(t, check.Hint(), "name a dead letter topic for it")
	})

	t.Run("ADeadLetterTopicMayBeASourceThatNamesAnother", func(t *testing.T) {
		t.Parallel()
		source, letters := good()
		second := letters
		second.MaxMessageBytes += dlq.MaxEnvelope
		topics := known{"orders": source, "orders.dlq": letters, "graveyard": second}
		require.NoError(t, dlq.Check(t.Context(), topics, dlq.Plan{Source: "orders.dlq", Topic: "graveyard"}))
	})

	t.Run("AClusterThatDoesNotAnswerIsNoProblemOfTheTopic", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := dlq.Check(ctx, adminOf(t, []string{"127.0.0.1:1"}), dlq.Plan{Source: "orders"})
		require.ErrorContains(t, err, `dead letter topic of "orders"`)
		var check *dlq.CheckError
		require.NotErrorAs(t, err, &check)
	})

	t.Run("AMissingPermissionSaysWhichAreNeeded", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t, kfake.SeedTopics(1, "orders"))
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "orders", Err: kerr.TopicAuthorizationFailed, Count: -1})
		problems := found(t, dlq.Check(t.Context(), adminOf(t, fake.ListenAddrs()), dlq.Plan{Source: "orders"}))
		require.Len(t, problems, 1)
		require.Contains(t, problems[0].Fix, "allow Describe and DescribeConfigs on orders")
	})
}

// TestWriterCheck creates dead letter topics on both kinds of broker.
func TestWriterCheck(t *testing.T) {
	t.Parallel()
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": func(t *testing.T) []string { t.Helper(); return kafkatest.Fake(t).ListenAddrs() },
		"Real": func(t *testing.T) []string { t.Helper(); return kafkatest.Real(t).Brokers() },
	} {
		t.Run(kind+"/WhatIsCreatedPassesAndTakesTheLargestRecord", func(t *testing.T) {
			t.Parallel()
			brokers := brokers(t)
			from := topicOf(t, brokers, kafkatest.Name(t), 4, "max.message.bytes", "3000000", "cleanup.policy", "compact")
			w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})

			problems := found(t, w.Check(t.Context(), from, false))
			require.Len(t, problems, 1)
			require.Contains(t, problems[0].What, "does not exist")
			require.NoError(t, w.Check(t.Context(), from, true))
			require.NoError(t, w.Check(t.Context(), from, false))

			got, err := adminOf(t, brokers).Topic(t.Context(), dlq.DefaultTopic(from))
			require.NoError(t, err)
			require.Equal(t, 4, got.Partitions)
			require.Equal(t, 3_000_000+dlq.MaxEnvelope, got.MaxMessageBytes)
			require.Equal(t, 14*24*time.Hour, got.Retention)
			require.False(t, got.Compacted())

			l := letterOf(largest(t, from, 3_000_000))
			l.Err = errors.New(string(hexNoise(t, 1<<20)))
			require.NoError(t, w.Write(t.Context(), l))
		})

		t.Run(kind+"/ANamedTopicIsChecked", func(t *testing.T) {
			t.Parallel()
			brokers := brokers(t)
			from, to := topicOf(t, brokers, kafkatest.Name(t), 1), topicOf(t, brokers, kafkatest.Name(t), 1)
			w := writer(t, dlq.WriterConfig{Client: clientOf(brokers), Topic: func(string) string { return to }})
			problems := found(t, w.Check(t.Context(), from, true))
			require.Len(t, problems, 1)
			require.Equal(t, to, problems[0].Topic)
			require.Contains(t, problems[0].What, "max.message.bytes")
		})
	}
}
