package kafka_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
)

// TestSourceIsAWatermillSubscriber is Watermill's own suite, on the fake broker.
func TestSourceIsAWatermillSubscriber(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t, kfake.AllowAutoTopicCreation())
	universal(t, fake.ListenAddrs(), func(topic string) {
		require.NoError(t, fake.CreateTopic(topic, 4, nil))
	})
}

// TestSourceIsAWatermillSubscriberOnARealBroker is the same on the real one.
func TestSourceIsAWatermillSubscriberOnARealBroker(t *testing.T) {
	t.Parallel()
	real := kafkatest.Real(t)
	universal(t, real.Brokers(), func(topic string) {
		kafkatest.CreateTopic(t, real.Brokers(), topic, 4)
	})
}

// universal runs the suite's tests one by one, so that each has a consumer group of its own: within a test all
// subscribers belong to the same.
func universal(t *testing.T, brokers []string, create func(topic string)) {
	t.Helper()
	client := kafka.ClientConfig{Brokers: brokers, Logger: quiet()}
	features := tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true,
		ForceShort: true,
	}
	create = once(create)
	inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
		return pubSub(t, client, group, create)
	}
	for name, test := range map[string]func(*testing.T, tests.TestContext, tests.PubSubConstructor){
		"PublishSubscribe": tests.TestPublishSubscribe, "ConcurrentSubscribe": tests.TestConcurrentSubscribe,
		"ConcurrentSubscribeMultipleTopics": tests.TestConcurrentSubscribeMultipleTopics,
		"ResendOnError":                     tests.TestResendOnError, "NoAck": tests.TestNoAck,
		"ContinueAfterSubscribeClose": tests.TestContinueAfterSubscribeClose, "ConcurrentClose": tests.TestConcurrentClose,
		"ContinueAfterErrors": tests.TestContinueAfterErrors, "PublishSubscribeInOrder": tests.TestPublishSubscribeInOrder,
		"PublisherClose": tests.TestPublisherClose, "Topic": tests.TestTopic, "MessageCtx": tests.TestMessageCtx,
		"SubscribeCtx": tests.TestSubscribeCtx,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := "g-" + watermill.NewShortUUID()
			test(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, func(t *testing.T) (message.Publisher, message.Subscriber) {
				t.Helper()
				return inGroup(t, group)
			})
		})
	}
	t.Run("ConsumerGroups", func(t *testing.T) {
		t.Parallel()
		tests.TestConsumerGroups(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, inGroup)
	})
}

func pubSub(t *testing.T, client kafka.ClientConfig, group string, create func(string)) (message.Publisher, message.Subscriber) {
	t.Helper()
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
	require.NoError(t, err)
	s, err := kafka.NewSource(kafka.SourceConfig{
		Client: client, Group: group, Logger: quiet(),
		SessionTimeout: 10 * time.Second, HeartbeatInterval: 200 * time.Millisecond,
		DrainGrace: 500 * time.Millisecond, HardGrace: 500 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(func() { // the suite leaves some open
		require.NoError(t, errors.Join(s.Close(), pub.Close()))
	})
	return pub, creating{s.Subscriber(kafka.Subscription{Order: kafka.ByPartition, Lanes: 1}), s, create}
}

// once creates each topic once.
func once(create func(topic string)) func(topic string) {
	var mu sync.Mutex
	made := map[string]bool{}
	return func(topic string) {
		mu.Lock()
		defer mu.Unlock()
		if !made[topic] {
			create(topic)
			made[topic] = true
		}
	}
}

// creating is a Source as the suite wants it: it makes topics, and its Close ends all of it.
type creating struct {
	message.Subscriber
	source *kafka.Source
	create func(topic string)
}

func (c creating) SubscribeInitialize(topic string) error {
	c.create(topic)
	return nil
}

func (c creating) Close() error { return c.source.Close() }
