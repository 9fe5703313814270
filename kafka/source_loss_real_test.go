package kafka_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// TestSourceLossOnARealBroker cuts off what was not read, and then makes the topic anew.
func TestSourceLossOnARealBroker(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Real(t).Brokers()
	topic, group, admin := kafkatest.Topic(t, brokers, 2), kafkatest.Name(t), kafkatest.Admin(t, brokers)
	produce := func(partition int32, n int) {
		rs := make([]*kgo.Record, n)
		for i := range rs {
			rs[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte("v")}
		}
		kafkatest.Produce(t, brokers, rs...)
	}
	eventually := func(what string, f func() bool) {
		require.Eventually(t, f, patience, 50*time.Millisecond, what)
	}
	committed := func(partition int32) int64 { return kafkatest.Committed(t, brokers, group, topic)[partition] }
	produce(0, 100)
	var at kadm.Offsets
	at.AddOffset(topic, 0, 5, -1)
	require.NoError(t, admin.CommitAllOffsets(t.Context(), group, at))
	at.AddOffset(topic, 0, 50, -1)
	_, err := admin.DeleteRecords(t.Context(), at)
	require.NoError(t, err)

	told, got := &reports{}, &seen{}
	cfg := kafka.SourceConfig{
		Client: kafka.ClientConfig{Brokers: brokers, Logger: quiet()}, Group: group, Logger: quiet(),
		OnOffsetLoss: kafka.LossOldest, CommitInterval: 100 * time.Millisecond,
	}
	told.hook(&cfg)
	s, err := kafka.NewSource(cfg)
	require.NoError(t, err)
	msgs, err := s.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	wg := handle(msgs, func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	eventually("it goes on", func() bool { return committed(0) == 100 })
	require.Equal(t, record.Lost{First: 5, Last: 49, Count: 45}, told.of(record.ReportOffsetOutOfRange)[0].Lost)

	_, err = admin.DeleteTopics(t.Context(), topic)
	require.NoError(t, err)
	eventually("it is created again", func() bool {
		_, err := admin.CreateTopic(t.Context(), 1, -1, nil, topic)
		return err == nil
	})
	produce(0, 7)
	eventually("the new one is read", func() bool { return committed(0) == 7 })
	require.Len(t, got.offsets[topic+"/0"], 50+7)
	require.NotEmpty(t, told.of(record.ReportTopicRecreated))
	require.NoError(t, s.Ready())
	require.NoError(t, s.Close())
	wg.Wait()
}
