package audit

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// FuzzOpenLetter wants every letter that dlq writes opened, whatever headers its record had, and no panic of anything else.
func FuzzOpenLetter(f *testing.F) {
	f.Add("a", []byte("b"), "orders", int32(1), int64(2), "billing", "post")
	f.Add("headrace-dlq", []byte("99"), "", int32(0), int64(0), "", "")
	f.Add("headrace-partition", []byte("-1"), "headrace-topic", int32(7), int64(1<<62), "\xff", "\x00")
	f.Fuzz(func(t *testing.T, name string, value []byte, topic string, partition int32, offset int64, group, route string) {
		hostile := []record.Header{{Key: name, Value: value}, {Key: "headrace-dlq", Value: value}}
		_, _ = openLetter(&record.Record{Headers: hostile})
		_, _ = openLetter(&record.Record{Headers: append(hostile, record.Header{Key: "headrace-dlq", Value: []byte("2")})})
		if partition < 0 || offset < 0 {
			return
		}
		env := dlq.Envelope{
			Origin: dlq.Coordinates{Topic: topic, Partition: partition, Offset: offset}, TopicID: uuid.New(), MessageID: uuid.New(),
			Timestamp: time.UnixMilli(0), Group: group, Route: route, Reason: dlq.Permanent,
		}
		l, ok := openLetter(&record.Record{Headers: env.Append(hostile)})
		require.True(t, ok)
		require.Equal(t, env.TopicID, l.topicID)
		require.Equal(t, env.MessageID, l.id)
		require.Equal(t, []string{topic, group, route}, []string{l.topic, l.group, l.route})
		require.Equal(t, spot{partition, offset}, l.origin)
	})
}

// FuzzIdentity wants every record known here by what the inbox knows it by, however hostile its headers and value.
func FuzzIdentity(f *testing.F) {
	f.Add("id", []byte("7"), "ce_source", []byte("/shop"), []byte(`{"a":{"b":"c"}}`), "a.b")
	f.Add(ceID, []byte("7"), ceSource, []byte("/shop"), []byte(`{"a":1e400}`), "a")
	f.Add(watermillUUID, []byte("\xff"), ceID, []byte(""), []byte("[[[[[{"), "")
	f.Add(ceID, []byte("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), ceSource, []byte("/shop"), []byte(`{"id":"\ud800"}`), "id")
	f.Fuzz(func(t *testing.T, name string, value []byte, other string, more, payload []byte, path string) {
		for i, chain := range map[Identity][]dedup.Resolver{
			{}:             dedup.DefaultIdentity(),
			{Header: name}: {dedup.Header(name)},
			{Field: path}:  {dedup.Field(path)},
		} {
			if i == (Identity{}) && len(chain) == 1 {
				continue // a name or a path of nothing is no configuration
			}
			r := &record.Record{
				TopicID: uuid.NameSpaceURL, Partition: 3, Offset: 7, Value: payload,
				Headers: []record.Header{{Key: name, Value: value}, {Key: other, Value: more}},
			}
			_ = dedup.Identify(r, chain...) // what cannot be read is known by its place
			_, place := placeOf(r.TopicID, r.Partition, r.Offset)
			require.Equal(t, r.Identity.Key, i.of(r, place), "%+v", i)
		}
	})
}
