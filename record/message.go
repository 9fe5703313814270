package record

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
)

// UUIDHeader is the header in which Watermill's Kafka transport carries a message's UUID.
const UUIDHeader = "_watermill_message_uuid"

// CountKey is the metadata key that says how many records a message carries. It travels with a copied message although
// its context does not, so a copy that lost its records is an error and never taken for a message of one.
const CountKey = "headrace_records"

type (
	recordsKey struct{}
	recordKey  struct{}
)

// NewMessage makes the message that carries rs, one or more records of one partition in offset order.
//
// The message of one record is the one that any Watermill handler expects: UUID, Payload and Metadata are the
// record's, as watermill-kafka's Unmarshaler has them. A message of several has no payload, and its UUID reads
// "topic/partition/first-last".
func NewMessage(ctx context.Context, rs []*Record) *message.Message {
	var msg *message.Message
	if len(rs) == 1 {
		msg = message.NewMessage(watermillUUID(rs[0]), bytes.Clone(rs[0].Value))
		fillMetadata(msg.Metadata, rs[0])
	} else {
		msg = message.NewMessage(span(rs), nil)
	}
	msg.Metadata[CountKey] = strconv.Itoa(len(rs))
	msg.SetContext(context.WithValue(ctx, recordsKey{}, rs))
	return msg
}

// Derive makes a message for inner layers that carries rs, some of the records of outer. It shares nothing with outer,
// which another goroutine may hold. An Ack of it tells nobody: the verdict stands on the records.
func Derive(outer *message.Message, rs []*Record) *message.Message {
	msg := &message.Message{UUID: outer.UUID, Metadata: maps.Clone(outer.Metadata)}
	msg.SetContext(context.WithValue(outer.Context(), recordsKey{}, rs))
	return msg
}

// Single makes the message of one that a handler gets inside the inbox: the record's identity as UUID, its value as
// payload, its headers as metadata, and the record itself in the context (see [Of]).
//
// The payload is a copy: a handler may edit it in place, and a dead letter must still equal what was delivered.
func Single(ctx context.Context, r *Record) *message.Message {
	s := &single{}
	s.msg.UUID, s.msg.Payload, s.msg.Metadata = r.Identity.ID, bytes.Clone(r.Value), make(message.Metadata, len(r.Headers))
	fillMetadata(s.msg.Metadata, r)
	s.msg.SetContext(s.under(ctx, r))
	return &s.msg
}

// single is a message of one and its context, in one allocation.
type single struct {
	msg     message.Message
	context recordContext
}

func (s *single) under(ctx context.Context, r *Record) context.Context {
	s.context = recordContext{ctx, r}
	return &s.context
}

// With makes the context under which r alone is handled: [Of] gives r, and what else its message carries is hidden,
// so that nothing inside can settle or fail a neighbour.
func With(ctx context.Context, r *Record) context.Context {
	return &recordContext{Context: ctx, record: r}
}

// recordContext hides the message's records behind one of them, in one allocation an attempt.
type recordContext struct {
	context.Context

	record *Record
}

func (c *recordContext) Value(key any) any {
	switch key.(type) {
	case recordKey:
		return c.record
	case recordsKey:
		return nil
	}
	return c.Context.Value(key)
}

// Of gives the record whose handler runs under ctx, nil outside of one.
func Of(ctx context.Context) *Record {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r
}

// Records gives the records that msg carries. The error wraps ErrNoRecords and says what is wrong: the message is none
// of ours, or its records were lost on the way.
func Records(msg *message.Message) ([]*Record, error) {
	rs, _ := msg.Context().Value(recordsKey{}).([]*Record)
	if len(rs) > 0 {
		return rs, nil
	}
	if n := msg.Metadata[CountKey]; n != "" {
		return nil, fmt.Errorf("%w: %s says %s, but its context was dropped on the way "+
			"(a middleware that copies a message must copy its context too)", ErrNoRecords, msg.UUID, n)
	}
	return nil, fmt.Errorf("%w: %q was not delivered by a Source of Headrace", ErrNoRecords, msg.UUID)
}

func watermillUUID(r *Record) string {
	if id, ok := r.Header(UUIDHeader); ok && len(id) > 0 {
		return string(id)
	}
	return r.Topic + "/" + strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10)
}

// fillMetadata follows watermill-kafka's Unmarshaler: every header but the UUID's, the last of a name wins.
func fillMetadata(m message.Metadata, r *Record) {
	for _, h := range r.Headers {
		if h.Key != UUIDHeader {
			m[h.Key] = string(h.Value)
		}
	}
}

func span(rs []*Record) string {
	first, last := rs[0], rs[len(rs)-1]
	return fmt.Sprintf("%s/%d/%d-%d", first.Topic, first.Partition, first.Offset, last.Offset)
}
