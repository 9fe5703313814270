package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
)

// TestPublisher_TheTimestampOfARecordIsNoDeadline publishes records of times long ago and far ahead: the client's own
// delivery timeout counts from a record's timestamp, so one of 1970 was over before it was first sent.
func TestPublisher_TheTimestampOfARecordIsNoDeadline(t *testing.T) {
	t.Parallel()
	for name, stamp := range map[string]time.Time{
		"Of1970": time.UnixMilli(0), "OfAnHourAgo": time.Now().Add(-time.Hour).Truncate(time.Millisecond),
		"Of2100": time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		for kind, alone := range map[string]bool{"Together": false, "Alone": true} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				fake, client := cluster(t, kfake.SeedTopics(1, "t"))
				var sent atomic.Int32
				fake.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
					fake.KeepControl()
					if sent.Add(1) > 1 {
						return nil, nil, false
					}
					return refused(req, kerr.NotEnoughReplicas), nil, true
				})
				rec := kafka.ProducerRecord{Topic: "t", Value: []byte("v"), Timestamp: stamp, Alone: alone}
				require.NoError(t, publisher(t, kafka.PublisherConfig{Client: client}).PublishRecords(t.Context(), rec))
				require.EqualValues(t, 2, sent.Load(), "refused once and sent once more")
				require.Equal(t, stamp.UnixMilli(), consume(t, client, "t", 1)[0].Timestamp.UnixMilli())
			})
		}
	}
}

// refused answers a produce request of one partition with an error that the client repeats.
func refused(req kmsg.Request, why *kerr.Error) kmsg.Response {
	produce := req.(*kmsg.ProduceRequest)
	resp := produce.ResponseKind().(*kmsg.ProduceResponse)
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic, topic.TopicID = produce.Topics[0].Topic, produce.Topics[0].TopicID
	partition := kmsg.NewProduceResponseTopicPartition()
	partition.Partition, partition.ErrorCode = produce.Topics[0].Partitions[0].Partition, why.Code
	topic.Partitions = append(topic.Partitions, partition)
	resp.Topics = append(resp.Topics, topic)
	return resp
}
