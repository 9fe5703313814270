package dlq

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/record"
)

const (
	// Prefix begins the names of all our headers.
	Prefix = "headrace-"
	// MarkHeader is the last header of a dead letter. Its value says how many of the headers before it are ours.
	MarkHeader = Prefix + "dlq"
	// maxFields bounds how many headers an envelope may have, however it was written.
	maxFields = 64
	// MaxEnvelope is more bytes than an envelope ever has.
	MaxEnvelope = 64 << 10
	// maxID bounds an identity's text, as package dedup does.
	maxID = 1024
)

// Coordinates are where a record was read.
type Coordinates struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Known says whether c is a place. Letters of other systems may not say where their record was read: then Partition and
// Offset are -1.
func (c Coordinates) Known() bool { return c.Topic != "" && c.Partition >= 0 && c.Offset >= 0 }

// String is "topic/partition/offset", or the topic alone where no more is known.
func (c Coordinates) String() string {
	if c.Partition < 0 || c.Offset < 0 {
		return c.Topic
	}
	return c.Topic + "/" + strconv.Itoa(int(c.Partition)) + "/" + strconv.FormatInt(c.Offset, 10)
}

// ParseCoordinates reads "topic/partition/offset", as String writes it.
func ParseCoordinates(s string) (Coordinates, error) {
	c, ok := parseCoordinates(s)
	if !ok || c.Topic == "" {
		return Coordinates{}, fmt.Errorf("coordinates %q are not topic/partition/offset, like orders/3/4711", trim(s, maxName))
	}
	return c, nil
}

// Envelope is what a dead letter's headers say beside the original ones.
type Envelope struct {
	// Origin is where the record was first read, whatever happened to it since, and TopicID the id of that topic.
	Origin  Coordinates
	TopicID uuid.UUID
	// Timestamp is the original record's. The dead letter's own is when it was written: with the original one, retention
	// would delete an old record's copy within minutes.
	Timestamp time.Time
	// Latest is where the record was read when it died this time: Origin, or a replay topic.
	Latest Coordinates
	// MessageID is the identity as the inbox stores it.
	MessageID uuid.UUID
	// ID is the identity's text where it is not that of MessageID itself, at most 1024 bytes. A letter of another system has
	// the id that CloudEvents' and Watermill's headers say, and no MessageID: what identifies it is for its route to find.
	ID string
	// Group and Route are for whom it is dead.
	Group, Route string
	// Reason and Class say why, in our words; ErrorType, Message and Stack in those of the error.
	Reason    Reason
	Class     string
	ErrorType string
	Message   string
	// Stack is where the handler panicked, "" for other errors.
	Stack string
	// Fingerprint is the same for errors that differ only in numbers, ids and quoted values.
	Fingerprint string
	// Attempts is how many were charged in the last delivery.
	Attempts int
	// FirstFailed is when an attempt first failed, in the first delivery; LastFailed when one failed last.
	FirstFailed, LastFailed time.Time
	// History is what became of the record in earlier rounds, a line each; "" for one that was never parked.
	History string
	// Replays is how often the record was replayed.
	Replays int
}

// Identity is the text by which the record is known, "" if the letter says none.
func (e Envelope) Identity() string {
	if e.ID != "" || e.MessageID == uuid.Nil {
		return e.ID
	}
	return e.MessageID.String()
}

// Append gives the headers of a dead letter: the original ones, ours, and last the mark that counts ours. original stays
// as it is.
func (e Envelope) Append(original []record.Header) []record.Header {
	hs := make([]record.Header, len(original), len(original)+len(fields)+1)
	copy(hs, original)
	// One buffer holds all values. Where it grows, those already cut from it stay with the old one.
	buf := make([]byte, 0, 512+len(e.Message)+len(e.Stack)+len(e.History))
	for i := range fields {
		from := len(buf)
		buf = fields[i].put(&e, buf)
		if len(buf) > from || !fields[i].optional {
			hs = append(hs, record.Header{Key: fields[i].name, Value: buf[from:len(buf):len(buf)]})
		}
	}
	n := len(hs) - len(original)
	return append(hs, record.Header{Key: MarkHeader, Value: strconv.AppendInt(nil, int64(n), 10)})
}

// Decode splits the headers of a dead letter into what its envelope says and the original headers, and reports whether
// there is an envelope. The headers belong to it by position alone: whatever a producer wrote, under whatever name, is
// before ours and stays as it was.
//
// A field that cannot be read is left at its zero value. original shares hs's memory; it is nil for none.
func Decode(hs []record.Header) (e Envelope, original []record.Header, ok bool) {
	n, ok := ours(hs)
	if !ok {
		return Envelope{}, hs, false
	}
	first := len(hs) - 1 - n
	for _, h := range hs[first : len(hs)-1] {
		if f, known := byName[h.Key]; known {
			f.set(&e, string(h.Value))
		}
	}
	if first == 0 {
		return e, nil, true
	}
	return e, hs[:first:first], true
}

// ours counts the headers before the mark that are ours. A mark that does not fit what is before it is none: somebody
// else's header of that name, or a forged one.
func ours(hs []record.Header) (int, bool) {
	if len(hs) == 0 || hs[len(hs)-1].Key != MarkHeader {
		return 0, false
	}
	n, ok := count(hs[len(hs)-1].Value)
	if !ok || n >= len(hs) {
		return 0, false
	}
	for _, h := range hs[len(hs)-1-n : len(hs)-1] {
		if !strings.HasPrefix(h.Key, Prefix) || h.Key == MarkHeader {
			return 0, false
		}
	}
	return n, true
}

// count reads a mark as Append writes it and in no other spelling.
func count(value []byte) (int, bool) {
	n, err := strconv.Atoi(string(value[:min(len(value), 3)]))
	return n, err == nil && n > 0 && n <= maxFields && strconv.Itoa(n) == string(value)
}

// DecodeReplayed is Decode for a record of a replay topic. Replay writes whole envelopes there: one that lacks what a
// route needs to take a record up and to write its next letter, or gives it unreadably, is somebody else's, and the error
// says why. Its handler must not run: a letter of it could not be written, or would name no record.
func DecodeReplayed(hs []record.Header) (e Envelope, original []record.Header, err error) {
	e, original, ok := Decode(hs)
	if !ok {
		return Envelope{}, hs, errNoEnvelope
	}
	for i := range fields {
		if f := &fields[i]; f.needed && !f.stands(&e, hs[len(original):]) {
			return Envelope{}, hs, fmt.Errorf("its envelope has no readable %s", f.name)
		}
	}
	switch {
	case !legal(e.Origin.Topic):
		err = fmt.Errorf("%q in its envelope is no topic", trim(e.Origin.Topic, maxName))
	case e.Group == "" || e.Route == "":
		err = errors.New("its envelope names no route")
	case e.Replays == 0:
		err = errors.New("its envelope is that of a letter that was never replayed")
	}
	if err != nil {
		return Envelope{}, hs, err
	}
	return e, original, nil
}

var errNoEnvelope = errors.New("it has no envelope")
