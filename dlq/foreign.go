package dlq

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// convention is how another system writes what became of a record: into headers beside the record's own. They are known
// by their names alone, so what they say is believed for display and never for what a record is.
type convention struct {
	format Format
	// marks are headers of which one at least is in every letter, and in hardly anything else.
	marks []string
	// added are the names of all that the system adds; one that ends with "*" is a beginning.
	added []string
	read  func(hs headerList) Envelope
}

// conventions are those of
//   - Watermill's message/router/middleware/poison.go (v1.5.1). Its message id stays: the record may have had it before.
//   - Spring Kafka's DeadLetterPublishingRecoverer with the names in KafkaHeaders: kafka_dlt-… by default, kafka_original-…
//     and kafka_exception-… where @RetryableTopic set it up (DeadLetterPublishingRecovererFactory), retry_topic-… from the
//     retry topics before. Numbers are big endian, as ByteBuffer writes them.
//   - Kafka Connect's DeadLetterQueueReporter, with errors.deadletterqueue.context.headers.enable. Numbers are text.
var conventions = []convention{
	{
		format: FormatWatermill,
		marks:  []string{"reason_poisoned"},
		added:  []string{"reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned"},
		read:   readWatermill,
	},
	{
		format: FormatSpring,
		marks:  []string{"kafka_dlt-original-topic", "kafka_dlt-exception-fqcn", "kafka_original-topic", "kafka_exception-fqcn"},
		added:  []string{"kafka_dlt-*", "kafka_original-*", "kafka_exception-*", "kafka_key-exception-*", "retry_topic-*"},
		read:   readSpring,
	},
	{
		format: FormatConnect,
		marks:  []string{"__connect.errors.topic", "__connect.errors.connector.name", "__connect.errors.exception.class.name"},
		added:  []string{"__connect.errors.*"},
		read:   readConnect,
	},
}

// foreign reads a letter of another system. Where there are marks of several, the last one decides: a letter that dies
// again in another system keeps the headers of the first.
func foreign(r *record.Record) (Format, Envelope, []record.Header) {
	for _, h := range slices.Backward(r.Headers) {
		for _, c := range conventions {
			if slices.Contains(c.marks, h.Key) {
				env := c.read(r.Headers)
				env.Fingerprint = fingerprint(env.Reason, env.ErrorType, env.Message)
				original := c.original(r.Headers)
				env.ID = producersID(original)
				return c.format, env, original
			}
		}
	}
	return FormatUnknown, Envelope{Origin: unknownPlace, ID: producersID(r.Headers)}, r.Headers
}

// producersID is the id that a record has by the conventions that need no configuration, to find and show it by. What it
// is to a route, which may have resolvers of its own, is decided when it is replayed.
func producersID(hs []record.Header) string {
	r := &record.Record{Headers: hs}
	if err := dedup.Identify(r, dedup.DefaultIdentity()...); err != nil || r.Identity.FromCoordinates {
		return ""
	}
	return r.Identity.ID
}

// original is the headers without the added ones.
func (c convention) original(hs []record.Header) []record.Header {
	var kept []record.Header
	for _, h := range hs {
		if !slices.ContainsFunc(c.added, func(name string) bool { return isNamed(h.Key, name) }) {
			kept = append(kept, h)
		}
	}
	return kept
}

func isNamed(key, name string) bool {
	if beginning, ok := strings.CutSuffix(name, "*"); ok {
		return strings.HasPrefix(key, beginning)
	}
	return key == name
}

var unknownPlace = Coordinates{Partition: -1, Offset: -1}

func readWatermill(hs headerList) Envelope {
	return Envelope{
		Origin:  Coordinates{Topic: topicName(hs.last("topic_poisoned")), Partition: -1, Offset: -1},
		Latest:  unknownPlace,
		Route:   nameText(hs.last("handler_poisoned")),
		Message: messageText(hs.last("reason_poisoned"), maxMessage),
	}
}

// readSpring takes the first of several for where the record was first, the last for the rest: headers are appended on
// each pass through a retry topic, unless that is switched off.
func readSpring(hs headerList) Envelope {
	get := func(of func(string) []byte, name string) []byte {
		if v := of("kafka_dlt-" + name); v != nil {
			return v
		}
		return of("kafka_" + name)
	}
	at := func(of func(string) []byte) Coordinates {
		return coordinatesOf(get(of, "original-topic"), bigEndian(get(of, "original-partition"), 4), bigEndian(get(of, "original-offset"), 8))
	}
	thrown := func(name string) []byte {
		if v := get(hs.last, "exception-"+name); v != nil {
			return v
		}
		return get(hs.last, "key-exception-"+name) // the key could not be read
	}
	env := Envelope{
		Origin:    at(hs.first),
		Latest:    at(hs.last),
		Group:     nameText(hs.last("kafka_dlt-original-consumer-group")),
		ErrorType: nameText(thrown("cause-fqcn")),
		Message:   messageText(thrown("message"), maxMessage),
		Stack:     messageText(thrown("stacktrace"), maxStack),
		Attempts:  int(max(0, bigEndian(hs.last("retry_topic-attempts"), 4))),
	}
	if env.ErrorType == "" { // else it is the container's own ListenerExecutionFailedException
		env.ErrorType = nameText(thrown("fqcn"))
	}
	if ms := bigEndian(get(hs.first, "original-timestamp"), 8); ms >= 0 {
		env.Timestamp = time.UnixMilli(ms).UTC()
	}
	return env
}

func readConnect(hs headerList) Envelope {
	get := func(name string) []byte { return hs.last("__connect.errors." + name) }
	at := coordinatesOf(get("topic"), textNumber(get("partition"), 32), textNumber(get("offset"), 64))
	return Envelope{
		Origin:    at,
		Latest:    at,
		Group:     nameText(get("connector.name")),
		Class:     nameText(get("stage")),
		ErrorType: nameText(get("exception.class.name")),
		Message:   messageText(get("exception.message"), maxMessage),
		Stack:     messageText(get("exception.stacktrace"), maxStack),
	}
}

// headerList are headers that are looked up by name.
type headerList []record.Header

func (hs headerList) first(name string) []byte {
	for _, h := range hs {
		if h.Key == name {
			return h.Value
		}
	}
	return nil
}

func (hs headerList) last(name string) []byte {
	for _, h := range slices.Backward(hs) {
		if h.Key == name {
			return h.Value
		}
	}
	return nil
}

// coordinatesOf is a place of which all is known, or no more than the topic.
func coordinatesOf(topic []byte, partition, offset int64) Coordinates {
	c := Coordinates{Topic: topicName(topic), Partition: -1, Offset: -1}
	if partition >= 0 && partition <= 1<<31-1 && offset >= 0 {
		c.Partition, c.Offset = int32(partition), offset
	}
	return c
}

// bigEndian reads a number of this many bytes, -1 for anything else.
func bigEndian(b []byte, size int) int64 {
	switch {
	case len(b) != size:
		return -1
	case size == 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	}
	return int64(binary.BigEndian.Uint64(b))
}

// textNumber reads a number that is written out, -1 for anything else.
func textNumber(b []byte, bits int) int64 {
	n, err := strconv.ParseInt(string(b[:min(len(b), 20)]), 10, bits)
	if err != nil || len(b) > 20 {
		return -1
	}
	return n
}

// topicName is "" for what cannot be the name of a topic.
func topicName(b []byte) string {
	if len(b) > maxTopic || !legal(string(b)) {
		return ""
	}
	return string(b)
}

func nameText(b []byte) string {
	return trim(strings.ToValidUTF8(string(b[:min(len(b), 2*maxName)]), "\uFFFD"), maxName)
}

// messageText is somebody else's text as ours carry theirs.
func messageText(b []byte, most int) string {
	return trim(redact.Secrets(strings.ToValidUTF8(string(b[:min(len(b), scanned)]), "\uFFFD")), most)
}
