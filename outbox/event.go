package outbox

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

const (
	// MaxBytes is the largest event: a record's size on the wire, uncompressed, as kafka.ProducerRecord.Size counts it. It
	// is what Kafka's default max.message.bytes takes for sure.
	MaxBytes = 1_000_000
	// maxTopic is the longest topic name that Kafka takes.
	maxTopic = 249
	// maxID is the longest message id.
	maxID = 1024
)

// ErrEvent reports a message that cannot be published by way of the outbox. It is refused when it is published, because no
// forwarder could ever send it, and it would be in the way of all that come after it. Match with errors.Is.
var ErrEvent = errors.New("message cannot be an event of the outbox")

// event is one message, in a row of its own or in a pack.
type event struct {
	id        int64
	topic     string
	key       []byte
	value     []byte
	headers   []byte // encoded, without the message's id
	messageID string
	bytes     int32

	of        *row
	damaged   error // it cannot be read
	confirmed bool
}

// newDraft makes an event of msg, or says why nobody could send it. It keeps nothing of msg, which is its maker's.
func newDraft(topic string, msg *message.Message) (draft, error) {
	if msg == nil {
		return draft{}, fmt.Errorf("%w: it is nil", ErrEvent)
	}
	if err := checkTopic(topic); err != nil {
		return draft{}, fmt.Errorf("%w: message %q: %w", ErrEvent, msg.UUID, err)
	}
	id := msg.UUID
	if id == "" {
		// Whoever consumes it must be able to tell a repeat from another message.
		id = uuid.Must(uuid.NewV7()).String() // rises with time: consumers find it beside its neighbours
	}
	if err := checkID(id); err != nil {
		return draft{}, fmt.Errorf("%w: %w", ErrEvent, err)
	}
	rec, err := kafka.RecordOf(topic, msg)
	if err != nil {
		return draft{}, fmt.Errorf("%w: message %q for topic %q: %w", ErrEvent, id, topic, err)
	}
	rec.Headers[0].Value = []byte(id)
	size := rec.Size()
	if size > MaxBytes {
		return draft{}, fmt.Errorf("%w: message %q for topic %q has %d bytes, more than %d: put the payload elsewhere and publish where",
			ErrEvent, id, topic, size, MaxBytes)
	}
	e := event{key: rec.Key, value: rec.Value, headers: encodeHeaders(rec.Headers[1:]), messageID: id, bytes: int32(size)}
	return draft{topic: topic, bytes: e.bytes, body: e.body()}, nil
}

func checkTopic(topic string) error {
	const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	switch {
	case topic == "" || topic == "." || topic == "..":
		return fmt.Errorf("topic %q is no name of a topic", topic)
	case len(topic) > maxTopic:
		return fmt.Errorf("topic %.20q… has %d characters, more than Kafka's %d", topic, len(topic), maxTopic)
	case strings.Trim(topic, legal) != "":
		return fmt.Errorf("topic %q has characters other than letters, digits, '.', '_' and '-'", topic)
	}
	return nil
}

// checkID: the id is text in the table.
func checkID(id string) error {
	switch {
	case len(id) > maxID:
		return fmt.Errorf("message UUID %.20q… has %d bytes, more than %d", id, len(id), maxID)
	case !utf8.ValidString(id) || strings.ContainsRune(id, 0):
		return fmt.Errorf("message UUID %q is no text", id)
	}
	return nil
}

// record is what is sent: the record that a kafka.Publisher would have made of the message.
func (e *event) record() (*kgo.Record, error) {
	if e.damaged != nil {
		return nil, e.damaged
	}
	headers, err := decodeHeaders([]kgo.RecordHeader{{Key: record.UUIDHeader, Value: []byte(e.messageID)}}, e.headers)
	if err != nil {
		return nil, err
	}
	return &kgo.Record{Topic: e.topic, Key: e.key, Value: e.value, Headers: headers}, nil
}
