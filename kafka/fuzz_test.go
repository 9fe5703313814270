package kafka_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// FuzzRecordOf wants whatever a message is made of in its record, or the message refused.
func FuzzRecordOf(f *testing.F) {
	f.Add("id", []byte("payload"), "key", "name", "value")
	f.Add("", []byte(nil), "\xff", record.UUIDHeader, "x")
	f.Fuzz(func(t *testing.T, id string, payload []byte, key, name, value string) {
		msg := message.NewMessage(id, payload)
		msg.Metadata.Set(name, value)
		kafka.SetKey(msg, []byte(key))
		r, err := kafka.RecordOf("topic", msg)
		if err != nil {
			return
		}
		require.Equal(t, payload, []byte(r.Value))
		require.Equal(t, key, string(r.Key))
		require.Equal(t, record.UUIDHeader, r.Headers[0].Key)
		require.Equal(t, id, string(r.Headers[0].Value))
		if name != kafka.KeyMetadata && name != record.CountKey {
			require.Contains(t, r.Headers, record.Header{Key: name, Value: []byte(value)})
		}
	})
}
