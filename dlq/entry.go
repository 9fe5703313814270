package dlq

import (
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/record"
)

// Format is whose dead letter it is.
type Format string

// The formats.
const (
	// FormatHeadrace is ours.
	FormatHeadrace Format = "headrace"
	// FormatWatermill is that of Watermill's PoisonQueue.
	FormatWatermill Format = "watermill"
	// FormatSpring is that of Spring Kafka's DeadLetterPublishingRecoverer.
	FormatSpring Format = "spring"
	// FormatConnect is that of Kafka Connect's sink connectors.
	FormatConnect Format = "connect"
	// FormatUnknown is a record that is no dead letter of any of them.
	FormatUnknown Format = "unknown"
)

// Formats are all formats.
var Formats = [...]Format{FormatHeadrace, FormatWatermill, FormatSpring, FormatConnect, FormatUnknown}

// Entry is a dead letter as it stands in its topic. It may be kept; Key, Value and header values share the memory of
// the records that were fetched with it and must not be written to.
type Entry struct {
	// Topic, Partition and Offset are where the letter stands, TopicID the id of that topic.
	Topic     string
	TopicID   uuid.UUID
	Partition int32
	Offset    int64
	// Written is the letter's own timestamp. Kafka Connect gives its letters that of the record.
	Written time.Time
	// Format is whose letter it is.
	Format Format
	// Envelope is what the letter says of its record: for other formats than ours as far as their headers go. What they
	// do not say is zero, and Origin's Partition and Offset -1.
	Envelope Envelope
	// Key, Value and Headers are the record's: Headers without what was added when it died.
	Key, Value []byte
	Headers    []record.Header
	// Later is where the record's latest letter stands, if that is another one. Only what a Filter names by its own place
	// is given although there is a later one.
	Later *Coordinates
}

// Place is where the letter stands.
func (e *Entry) Place() Coordinates {
	return Coordinates{Topic: e.Topic, Partition: e.Partition, Offset: e.Offset}
}

// Failed is when the record failed last, or else when its letter was written.
func (e *Entry) Failed() time.Time {
	if e.Envelope.LastFailed.IsZero() {
		return e.Written
	}
	return e.Envelope.LastFailed
}

// NewEntry makes an entry of a record of a dead letter topic: it recognises the format by its headers. A record that is
// no letter of a known format, or whose headers are damaged, is an entry all the same, with what is known of it.
func NewEntry(r *record.Record) *Entry {
	e := &Entry{
		Topic: r.Topic, TopicID: r.TopicID, Partition: r.Partition, Offset: r.Offset,
		Written: r.Timestamp, Key: r.Key, Value: r.Value,
	}
	env, original, ok := Decode(r.Headers)
	if ok {
		e.Format, e.Envelope, e.Headers = FormatHeadrace, env, original
		return e
	}
	e.Format, e.Envelope, e.Headers = foreign(r)
	return e
}
