package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// A record's timestamp is any 64 bits of milliseconds, JSON's has four digits for a year: such a letter once ended the
// list, and those behind it were missing.
func TestJSON_ATimestampBeyondItsYearsHidesNoLetter(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for i, at := range []time.Time{time.UnixMilli(0), time.UnixMilli(253402300800000), time.UnixMilli(1 << 62), time.UnixMilli(-1 << 62), time.UnixMilli(-62167219200001), night} {
		env := exhausted(i)
		env.Timestamp = at
		b.bury(env, []byte("k"), []byte("v"))
	}
	kafkatest.CreateTopic(t, b.brokers, "spring-dlt", 1)
	b.produce("spring-dlt", 0, night, []byte("k"), []byte("v"),
		record.Header{Key: "kafka_dlt-original-topic", Value: []byte("orders")},
		record.Header{Key: "kafka_dlt-original-timestamp", Value: []byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}})
	for topic, want := range map[string]struct{ letters, unspeakable int }{"orders.dlq": {6, 4}, "spring-dlt": {1, 1}} {
		printed := lines(b.ok("dlq", "ls", "--topic", topic, "--json").out)
		require.Len(t, printed, want.letters)
		nulls := 0
		for _, line := range printed {
			var letter letterJSON
			require.NoError(t, json.Unmarshal([]byte(line), &letter))
			if letter.SourceTimestamp == nil {
				nulls++
			}
		}
		require.Equal(t, want.unspeakable, nulls)
	}
	require.Contains(t, b.ok("dlq", "show", "--topic", "orders.dlq", "--at", "orders/1/2", "--json").out, `"source_timestamp":null`)
	b.ok("dlq", "ls", "--topic", "orders.dlq")
	b.ok("dlq", "show", "--topic", "orders.dlq", "--at", "orders/1/2")
}
