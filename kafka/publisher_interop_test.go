package kafka_test

import (
	"testing"

	"github.com/IBM/sarama"
	stock "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// interopMessages are what both transports must write and read alike.
func interopMessages() map[string]*message.Message {
	full := message.NewMessage("5e7a", []byte(`{"amount":7}`))
	full.Metadata = message.Metadata{"trace": "4bf9", "empty": "", "bytes": "\xff\x00"}
	return map[string]*message.Message{
		"full":      full,
		"no uuid":   message.NewMessage("", []byte("x")),
		"tombstone": message.NewMessage("id", nil),
		"empty":     message.NewMessage("id", []byte{}),
	}
}

func TestInteroperation(t *testing.T) {
	t.Parallel()
	for name, msg := range interopMessages() {
		t.Run("StockReadsOurs/"+name, func(t *testing.T) {
			t.Parallel()
			_, client := cluster(t, kfake.SeedTopics(1, "t"))
			require.NoError(t, publisher(t, kafka.PublisherConfig{Client: client}).Publish("t", msg))
			got, err := stock.DefaultMarshaler{}.Unmarshal(asSarama(consume(t, client, "t", 1)[0]))
			require.NoError(t, err)
			require.Equal(t, msg.UUID, got.UUID)
			require.Equal(t, msg.Payload, got.Payload)
			require.Equal(t, msg.Metadata, got.Metadata)
		})
		t.Run("WeReadStocks/"+name, func(t *testing.T) {
			t.Parallel()
			theirs, err := stock.DefaultMarshaler{}.Marshal("t", msg)
			require.NoError(t, err)
			r := asRecord(t, theirs)
			got := record.NewMessage(t.Context(), []*record.Record{r})
			wantUUID := msg.UUID
			if wantUUID == "" {
				wantUUID = "t/0/0" // a message without one would be the same as every other
			}
			require.Equal(t, wantUUID, got.UUID)
			require.Equal(t, msg.Payload, got.Payload)
			delete(got.Metadata, record.CountKey)
			require.Equal(t, msg.Metadata, got.Metadata)
		})
		t.Run("BothWriteTheSameHeaders/"+name, func(t *testing.T) {
			t.Parallel()
			_, client := cluster(t, kfake.SeedTopics(1, "t"))
			require.NoError(t, publisher(t, kafka.PublisherConfig{Client: client}).Publish("t", msg))
			theirs, err := stock.DefaultMarshaler{}.Marshal("t", msg)
			require.NoError(t, err)
			ours := consume(t, client, "t", 1)[0]
			require.Equal(t, ours.Headers[0].Key, string(theirs.Headers[0].Key))
			require.ElementsMatch(t, asRecord(t, theirs).Headers, fromClient(ours))
		})
	}

	t.Run("BothRefuseTheReservedMetadata", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.SeedTopics(1, "t"))
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set(stock.UUIDHeaderKey, "other")
		_, err := stock.DefaultMarshaler{}.Marshal("t", msg)
		require.Error(t, err)
		require.Error(t, publisher(t, kafka.PublisherConfig{Client: client}).Publish("t", msg))
	})

	t.Run("TheUUIDHeaderIsTheSame", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, stock.UUIDHeaderKey, record.UUIDHeader)
	})
}

func asSarama(r *kgo.Record) *sarama.ConsumerMessage {
	m := &sarama.ConsumerMessage{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return m
}

func asRecord(t *testing.T, m *sarama.ProducerMessage) *record.Record {
	t.Helper()
	value, err := m.Value.Encode()
	require.NoError(t, err)
	r := &record.Record{Topic: m.Topic, Value: value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, record.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}

func fromClient(r *kgo.Record) []record.Header {
	var hs []record.Header
	for _, h := range r.Headers {
		hs = append(hs, record.Header{Key: h.Key, Value: h.Value})
	}
	return hs
}
