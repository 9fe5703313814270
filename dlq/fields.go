package dlq

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/record"
)

// field is one header of the envelope: put appends its value, set reads it.
type field struct {
	name     string
	optional bool // left out when empty
	needed   bool // of a letter that is replayed
	put      func(e *Envelope, buf []byte) []byte
	set      func(e *Envelope, value string)
}

// fields are the envelope in its order.
var fields = []field{
	needed(text("topic", func(e *Envelope) *string { return &e.Origin.Topic })),
	needed(id("topic-id", func(e *Envelope) *uuid.UUID { return &e.TopicID })),
	needed(number("partition", 32, func(e *Envelope) *int32 { return &e.Origin.Partition })),
	needed(number("offset", 64, func(e *Envelope) *int64 { return &e.Origin.Offset })),
	needed(millis("timestamp", func(e *Envelope) *time.Time { return &e.Timestamp })),
	place("latest", func(e *Envelope) *Coordinates { return &e.Latest }),
	needed(id("message-id", func(e *Envelope) *uuid.UUID { return &e.MessageID })),
	optional(bounded(maxID, text("id", func(e *Envelope) *string { return &e.ID }))),
	needed(text("group", func(e *Envelope) *string { return &e.Group })),
	needed(text("route", func(e *Envelope) *string { return &e.Route })),
	text("reason", func(e *Envelope) *Reason { return &e.Reason }),
	text("class", func(e *Envelope) *string { return &e.Class }),
	text("error-type", func(e *Envelope) *string { return &e.ErrorType }),
	text("error-message", func(e *Envelope) *string { return &e.Message }),
	optional(text("stack", func(e *Envelope) *string { return &e.Stack })),
	text("fingerprint", func(e *Envelope) *string { return &e.Fingerprint }),
	number("attempts", 31, func(e *Envelope) *int { return &e.Attempts }),
	moment("first-failed", func(e *Envelope) *time.Time { return &e.FirstFailed }),
	moment("last-failed", func(e *Envelope) *time.Time { return &e.LastFailed }),
	optional(text("history", func(e *Envelope) *string { return &e.History })),
	needed(number("replays", 31, func(e *Envelope) *int { return &e.Replays })),
}

var byName = func() map[string]field {
	m := make(map[string]field, len(fields))
	for _, f := range fields {
		m[f.name] = f
	}
	return m
}()

func optional(f field) field {
	f.optional = true
	return f
}

func needed(f field) field {
	f.needed = true
	return f
}

// stands says whether e has the field from one of hs, as it was written there.
func (f *field) stands(e *Envelope, hs []record.Header) bool {
	is := f.put(e, nil)
	return slices.ContainsFunc(hs, func(h record.Header) bool { return h.Key == f.name && bytes.Equal(h.Value, is) })
}

// bounded leaves a longer value unread: half of an identity would be another identity.
func bounded(most int, f field) field {
	set := f.set
	f.set = func(e *Envelope, value string) {
		if len(value) <= most {
			set(e, value)
		}
	}
	return f
}

func text[S ~string](name string, at func(*Envelope) *S) field {
	return field{
		name: Prefix + name,
		put:  func(e *Envelope, buf []byte) []byte { return append(buf, *at(e)...) },
		set:  func(e *Envelope, value string) { *at(e) = S(value) },
	}
}

// number reads what is not negative only: no field of ours ever is.
func number[N int | int32 | int64](name string, bits int, at func(*Envelope) *N) field {
	return field{
		name: Prefix + name,
		put:  func(e *Envelope, buf []byte) []byte { return strconv.AppendInt(buf, int64(*at(e)), 10) },
		set: func(e *Envelope, value string) {
			if n, err := strconv.ParseInt(value, 10, bits); err == nil && n >= 0 {
				*at(e) = N(n)
			}
		},
	}
}

func id(name string, at func(*Envelope) *uuid.UUID) field {
	return field{
		name: Prefix + name,
		put:  func(e *Envelope, buf []byte) []byte { return append(buf, at(e).String()...) },
		set: func(e *Envelope, value string) {
			if u, err := uuid.Parse(value); err == nil {
				*at(e) = u
			}
		},
	}
}

// millis is a time as Kafka stores it, any 64 bits of milliseconds.
func millis(name string, at func(*Envelope) *time.Time) field {
	return field{
		name: Prefix + name,
		put:  func(e *Envelope, buf []byte) []byte { return strconv.AppendInt(buf, at(e).UnixMilli(), 10) },
		set: func(e *Envelope, value string) {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				*at(e) = time.UnixMilli(n).UTC()
			}
		},
	}
}

// layout has a fixed width, so that a letter's size does not vary with the time of day.
const layout = "2006-01-02T15:04:05.000Z"

// moment is a time of our own clock, for people to read; "" is the zero time.
func moment(name string, at func(*Envelope) *time.Time) field {
	return field{
		name: Prefix + name,
		put: func(e *Envelope, buf []byte) []byte {
			if at(e).IsZero() {
				return buf
			}
			return at(e).UTC().AppendFormat(buf, layout)
		},
		set: func(e *Envelope, value string) {
			if t, err := time.Parse(layout, value); err == nil {
				*at(e) = t
			}
		},
	}
}

func place(name string, at func(*Envelope) *Coordinates) field {
	return field{
		name: Prefix + name,
		put:  func(e *Envelope, buf []byte) []byte { return append(buf, at(e).String()...) },
		set: func(e *Envelope, value string) {
			if c, ok := parseCoordinates(value); ok {
				*at(e) = c
			}
		},
	}
}

func parseCoordinates(s string) (Coordinates, bool) {
	rest, offset, ok := cutLast(s)
	topic, partition, ok2 := cutLast(rest)
	if !ok || !ok2 {
		return Coordinates{}, false
	}
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if err != nil || err2 != nil || p < 0 || o < 0 {
		return Coordinates{}, false
	}
	return Coordinates{Topic: topic, Partition: int32(p), Offset: o}, true
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}
