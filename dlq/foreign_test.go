package dlq_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

func be4(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
func be8(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func header(name, value string) record.Header { return record.Header{Key: name, Value: []byte(value)} }

// entryOf is the entry of a record with these headers.
func entryOf(hs ...record.Header) *dlq.Entry {
	return dlq.NewEntry(&record.Record{Topic: "dead", Partition: 1, Offset: 2, Timestamp: time.UnixMilli(1).UTC(), Value: []byte("v"), Headers: hs})
}

// poisoned is what Watermill's PoisonQueue publishes through watermill-kafka's DefaultMarshaler: the order is a map's.
func poisoned() []record.Header {
	return []record.Header{
		header("_watermill_message_uuid", "7d1b9f0e-1c55-4f3b-9c55-6d0a4a1f0d11"),
		header("handler_poisoned", "post-order"),
		header("trace-id", "4bf9"),
		header("topic_poisoned", "orders"),
		header("reason_poisoned", "cannot post: password=hunter2"),
		header("subscriber_poisoned", "kafka.Subscriber"),
	}
}

// sprung is what Spring's DeadLetterPublishingRecoverer publishes from a listener container.
func sprung() []record.Header {
	return []record.Header{
		header("trace-id", "4bf9"),
		header("kafka_dlt-exception-fqcn", "org.springframework.kafka.listener.ListenerExecutionFailedException"),
		header("kafka_dlt-exception-cause-fqcn", "java.lang.IllegalStateException"),
		header("kafka_dlt-exception-message", "Listener failed; no account for order 17"),
		header("kafka_dlt-exception-stacktrace", "org.springframework…\n\tat com.example.Orders.on(Orders.java:42)\n"),
		header("kafka_dlt-original-topic", "orders"),
		{Key: "kafka_dlt-original-partition", Value: be4(3)},
		{Key: "kafka_dlt-original-offset", Value: be8(4711)},
		{Key: "kafka_dlt-original-timestamp", Value: be8(1_795_994_079_120)},
		header("kafka_dlt-original-timestamp-type", "CreateTime"),
		header("kafka_dlt-original-consumer-group", "billing"),
	}
}

// retried is what the topics of Spring's @RetryableTopic leave on a record: other names, and the number of attempts.
func retried() []record.Header {
	return []record.Header{
		header("kafka_original-topic", "orders"),
		{Key: "kafka_original-partition", Value: be4(3)},
		{Key: "kafka_original-offset", Value: be8(4711)},
		{Key: "kafka_original-timestamp", Value: be8(1_795_994_079_120)},
		header("kafka_original-timestamp-type", "CreateTime"),
		header("kafka_dlt-original-consumer-group", "billing"),
		header("trace-id", "4bf9"),
		header("kafka_exception-fqcn", "org.springframework.kafka.listener.ListenerExecutionFailedException"),
		header("kafka_exception-cause-fqcn", "java.lang.IllegalStateException"),
		header("kafka_exception-message", "Listener failed; no account for order 17"),
		header("kafka_exception-stacktrace", "org.springframework…"),
		{Key: "retry_topic-attempts", Value: be4(4)},
		{Key: "retry_topic-original-timestamp", Value: be8(1_795_994_079_120)},
		{Key: "retry_topic-backoff-timestamp", Value: be8(1_795_994_080_120)},
	}
}

// connected is what Connect's DeadLetterQueueReporter produces with context headers.
func connected() []record.Header {
	return []record.Header{
		header("trace-id", "4bf9"),
		header("__connect.errors.topic", "orders"),
		header("__connect.errors.partition", "3"),
		header("__connect.errors.offset", "4711"),
		header("__connect.errors.connector.name", "ledger-sink"),
		header("__connect.errors.task.id", "0"),
		header("__connect.errors.stage", "VALUE_CONVERTER"),
		header("__connect.errors.class.name", "org.apache.kafka.connect.json.JsonConverter"),
		header("__connect.errors.exception.class.name", "org.apache.kafka.connect.errors.DataException"),
		header("__connect.errors.exception.message", "Converting byte[] to Kafka Connect data failed due to serialization error: "),
		header("__connect.errors.exception.stacktrace", "org.apache.kafka.connect.errors.DataException: …"),
	}
}

func TestNewEntry_ReadsTheLettersOfOtherSystems(t *testing.T) {
	t.Parallel()
	origin := dlq.Coordinates{Topic: "orders", Partition: 3, Offset: 4711}
	nowhere := dlq.Coordinates{Partition: -1, Offset: -1}
	at := time.UnixMilli(1_795_994_079_120).UTC()
	trace := []record.Header{header("trace-id", "4bf9")}
	for name, c := range map[string]struct {
		headers  []record.Header
		format   dlq.Format
		original []record.Header
		want     dlq.Envelope
	}{
		"Watermill": {
			poisoned(), dlq.FormatWatermill,
			[]record.Header{header("_watermill_message_uuid", "7d1b9f0e-1c55-4f3b-9c55-6d0a4a1f0d11"), header("trace-id", "4bf9")},
			dlq.Envelope{
				Origin: dlq.Coordinates{Topic: "orders", Partition: -1, Offset: -1}, Latest: nowhere,
				ID: "7d1b9f0e-1c55-4f3b-9c55-6d0a4a1f0d11", Route: "post-order", Message: "cannot post: password=***",
			},
		},
		"Spring": {sprung(), dlq.FormatSpring, trace, dlq.Envelope{
			Origin: origin, Latest: origin, Timestamp: at, Group: "billing", ErrorType: "java.lang.IllegalStateException",
			Message: "Listener failed; no account for order 17",
			Stack:   "org.springframework…\n\tat com.example.Orders.on(Orders.java:42)\n",
		}},
		"Spring after retry topics": {retried(), dlq.FormatSpring, trace, dlq.Envelope{
			Origin: origin, Latest: origin, Timestamp: at, Group: "billing", ErrorType: "java.lang.IllegalStateException",
			Message: "Listener failed; no account for order 17", Stack: "org.springframework…", Attempts: 4,
		}},
		"Connect": {connected(), dlq.FormatConnect, trace, dlq.Envelope{
			Origin: origin, Latest: origin, Group: "ledger-sink", Class: "VALUE_CONVERTER",
			ErrorType: "org.apache.kafka.connect.errors.DataException",
			Message:   "Converting byte[] to Kafka Connect data failed due to serialization error: ",
			Stack:     "org.apache.kafka.connect.errors.DataException: …",
		}},
		"none": {trace, dlq.FormatUnknown, trace, dlq.Envelope{Origin: nowhere}},
	} {
		e := entryOf(c.headers...)
		require.Equal(t, c.format, e.Format, name)
		require.Equal(t, c.original, e.Headers, name)
		if c.format != dlq.FormatUnknown {
			require.NotEmpty(t, e.Envelope.Fingerprint, name)
		}
		e.Envelope.Fingerprint = ""
		require.Equal(t, c.want, e.Envelope, name)
		require.Equal(t, c.format != dlq.FormatWatermill && c.format != dlq.FormatUnknown, e.Envelope.Origin.Known(), name)
	}
}

func TestNewEntry_SpringsPassesKeepTheFirstOriginAndTheLastError(t *testing.T) {
	t.Parallel()
	e := entryOf(append(
		sprung(),
		header("kafka_dlt-original-topic", "orders-dlt"),
		record.Header{Key: "kafka_dlt-original-partition", Value: be4(0)},
		record.Header{Key: "kafka_dlt-original-offset", Value: be8(5)},
		header("kafka_dlt-exception-message", "again"),
	)...)
	require.Equal(t, "orders/3/4711", e.Envelope.Origin.String())
	require.Equal(t, "orders-dlt/0/5", e.Envelope.Latest.String())
	require.Equal(t, "again", e.Envelope.Message)
}

func TestNewEntry_AKeyThatSpringCouldNotReadSaysWhy(t *testing.T) {
	t.Parallel()
	e := entryOf(
		header("kafka_dlt-key-exception-fqcn", "org.apache.kafka.common.errors.SerializationException"),
		header("kafka_dlt-key-exception-message", "not a number"),
		header("kafka_dlt-original-topic", "orders"),
	)
	require.Equal(t, "org.apache.kafka.common.errors.SerializationException", e.Envelope.ErrorType)
	require.Equal(t, "not a number", e.Envelope.Message)
	require.Empty(t, e.Headers)
}

func TestNewEntry_TheLastSystemToBuryARecordIsTheOne(t *testing.T) {
	t.Parallel()
	require.Equal(t, dlq.FormatConnect, entryOf(append(sprung(), connected()...)...).Format)
	require.Equal(t, dlq.FormatSpring, entryOf(append(connected(), sprung()...)...).Format)
	ours := entryOf(full().Append(sprung())...)
	require.Equal(t, dlq.FormatHeadrace, ours.Format)
	require.Equal(t, sprung(), ours.Headers, "what another system added before is the record's own to us")
}

// A damaged header is one that is not there.
func TestNewEntry_MalformedHeadersAreAbsent(t *testing.T) {
	t.Parallel()
	for _, hostile := range [][]byte{nil, {}, {1}, {1, 2, 3}, bytes.Repeat([]byte{9}, 9), be4(-1), be8(-1), be8(math.MinInt64), bytes.Repeat([]byte("9"), 1<<20), []byte("3 ")} {
		for _, hs := range [][]record.Header{
			{
				header("kafka_dlt-original-topic", "orders"),
				{Key: "kafka_dlt-original-partition", Value: be4(3)},
				{Key: "kafka_dlt-original-offset", Value: hostile},
				{Key: "kafka_dlt-original-timestamp", Value: hostile},
				{Key: "retry_topic-attempts", Value: hostile},
			},
			{
				header("__connect.errors.topic", "orders"),
				{Key: "__connect.errors.partition", Value: hostile},
				header("__connect.errors.offset", "4711"),
			},
		} {
			if len(hostile) == 4 && hs[0].Key == "kafka_dlt-original-topic" {
				hs = hs[:3] // four bytes of it are a number of attempts
			}
			e := entryOf(hs...)
			require.Equal(t, dlq.Coordinates{Topic: "orders", Partition: -1, Offset: -1}, e.Envelope.Origin, "%.20x", hostile)
			require.Equal(t, "orders", e.Envelope.Origin.String())
			require.Zero(t, e.Envelope.Timestamp)
			require.Zero(t, e.Envelope.Attempts)
			require.Empty(t, e.Headers)
		}
	}
	for _, topic := range []string{"", "a/b", "o\x1b[2J", strings.Repeat("t", 250), "\xff"} {
		require.Empty(t, entryOf(header("__connect.errors.topic", topic)).Envelope.Origin.Topic)
	}
}

func TestNewEntry_SomebodyElsesTextIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("水\xff", 1<<20)
	e := entryOf(
		header("reason_poisoned", long), header("handler_poisoned", long), header("topic_poisoned", "orders"),
	)
	require.LessOrEqual(t, len(e.Envelope.Message), 4096)
	require.LessOrEqual(t, len(e.Envelope.Route), 1024)
	require.True(t, utf8.ValidString(e.Envelope.Message))
	require.True(t, utf8.ValidString(e.Envelope.Route))
}

// FuzzEntry reads any headers at all: whatever they are, the entry is bounded, its headers are some of the record's in
// their order, and what it says can be written as an envelope of our own and read again.
func FuzzEntry(f *testing.F) {
	for _, hs := range [][]record.Header{nil, poisoned(), sprung(), retried(), connected(), full().Append(nil)} {
		f.Add(packed(f, hs))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		hs := unpacked(raw)
		e := dlq.NewEntry(&record.Record{Topic: "dead", Headers: hs})
		require.Contains(t, dlq.Formats, e.Format)
		rest := hs
		for _, kept := range e.Headers {
			for len(rest) > 0 && (rest[0].Key != kept.Key || !bytes.Equal(rest[0].Value, kept.Value)) {
				rest = rest[1:]
			}
			require.NotEmpty(t, rest, "%q is no header of the record, or out of order", kept.Key)
			rest = rest[1:]
		}
		if e.Format == dlq.FormatHeadrace {
			return
		}
		env := e.Envelope
		var size int
		for _, h := range env.Append(nil) {
			size += len(h.Key) + len(h.Value)
		}
		require.Less(t, size, dlq.MaxEnvelope)
		if env.Origin.Known() {
			got, _, ok := dlq.Decode(env.Append(nil))
			require.True(t, ok)
			require.Equal(t, env.Origin, got.Origin)
			require.Equal(t, env.Message, got.Message)
		}
	})
}

// packed and unpacked are headers as fuzzed bytes: JSON keeps the corpus readable, and any other bytes are one header.
func packed(f *testing.F, hs []record.Header) []byte {
	f.Helper()
	raw, err := json.Marshal(hs)
	require.NoError(f, err)
	return raw
}

func unpacked(raw []byte) []record.Header {
	var hs []record.Header
	if json.Unmarshal(raw, &hs) == nil {
		return hs
	}
	return headersFrom(raw)
}
