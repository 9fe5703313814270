package dlq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestReadAt_GivesTheRecordAsItsConsumersReadIt(t *testing.T) {
	t.Parallel()
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": func(t *testing.T) []string { t.Helper(); return kafkatest.Fake(t).ListenAddrs() },
		"Real": func(t *testing.T) []string { t.Helper(); return kafkatest.Real(t).Brokers() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			addrs := brokers(t)
			topic := kafkatest.Topic(t, addrs, 2)
			client := kafkatest.Client(t, addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			adm := kadm.NewClient(client)
			write := func(value string) *kgo.Record {
				return &kgo.Record{
					Topic: topic, Partition: 1, Key: []byte("k"), Value: []byte(value),
					Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a"}},
				}
			}
			require.NoError(t, client.ProduceSync(t.Context(), write("0"), write("1"), write("2")).FirstErr())
			aborted := write("3")
			transactAt(t, addrs, aborted)
			require.Eventually(t, func() bool { // the marker is written behind the client's back
				ends, err := adm.ListCommittedOffsets(t.Context(), topic)
				end, _ := ends.Lookup(topic, 1)
				return err == nil && end.Offset == 5
			}, patience, 10*time.Millisecond)
			_, err := adm.DeleteRecords(t.Context(), kadm.Offsets{topic: {1: {Topic: topic, Partition: 1, At: 1}}})
			require.NoError(t, err)
			topics, err := adm.ListTopics(t.Context(), topic)
			require.NoError(t, err)

			at := func(partition int32, offset int64) (*record.Record, error) {
				return dlq.ReadAt(t.Context(), clientOf(addrs), dlq.Coordinates{Topic: topic, Partition: partition, Offset: offset})
			}
			got, err := at(1, 2)
			require.NoError(t, err)
			require.Equal(t, "2", string(got.Value))
			require.Equal(t, "k", string(got.Key))
			require.Equal(t, []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a"}}, got.Headers)
			require.Equal(t, [16]byte(topics[topic].ID), [16]byte(got.TopicID))
			require.Equal(t, []any{topic, int32(1), int64(2)}, []any{got.Topic, got.Partition, got.Offset})

			for want, place := range map[string]dlq.Coordinates{
				"deleted: the partition begins at offset 1": {Partition: 1, Offset: 0},
				"there is no record":                        {Partition: 1, Offset: 3},
				"ends before offset 5":                      {Partition: 1, Offset: 5},
				"no partition 2, it has 2":                  {Partition: 2},
			} {
				_, err := at(place.Partition, place.Offset)
				require.ErrorContains(t, err, want)
				var none *dlq.NoRecordError
				require.ErrorAs(t, err, &none)
				require.Equal(t, place.Offset, none.At.Offset)
			}
			_, err = dlq.ReadAt(t.Context(), clientOf(addrs), dlq.Coordinates{Topic: topic + "-nowhere"})
			require.ErrorIs(t, err, kafka.ErrUnknownTopic)
			_, err = dlq.ReadAt(t.Context(), kafka.ClientConfig{}, dlq.Coordinates{Topic: topic})
			require.Error(t, err)
		})
	}
}

// transactAt writes a record to its own partition, in a transaction that is aborted.
func transactAt(t *testing.T, brokers []string, r *kgo.Record) {
	t.Helper()
	client := kafkatest.Client(t, brokers, kgo.TransactionalID(kafkatest.Name(t)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	require.NoError(t, client.EndTransaction(t.Context(), kgo.TryAbort))
}
