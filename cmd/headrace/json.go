package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// letterJSON is a letter as --json prints it, one a line. The names are stable: scripts read them.
type letterJSON struct {
	Topic           string     `json:"topic"`
	Partition       int32      `json:"partition"`
	Offset          int64      `json:"offset"`
	Written         *time.Time `json:"written"`
	Format          string     `json:"format"`
	Source          string     `json:"source"`
	SourcePartition *int32     `json:"source_partition"` // null: the letter does not say
	SourceOffset    *int64     `json:"source_offset"`
	SourceTimestamp *time.Time `json:"source_timestamp"`
	ID              string     `json:"id"`
	Group           string     `json:"group"`
	Route           string     `json:"route"`
	Reason          string     `json:"reason"`
	Class           string     `json:"class"`
	ErrorType       string     `json:"error_type"`
	Error           string     `json:"error"`
	Fingerprint     string     `json:"fingerprint"`
	Attempts        int        `json:"attempts"`
	Replays         int        `json:"replays"`
	FirstFailed     *time.Time `json:"first_failed"`
	LastFailed      *time.Time `json:"last_failed"`
	Key             *string    `json:"key"` // null: none, or no UTF-8
	KeyBase64       string     `json:"key_base64,omitempty"`
	ValueBytes      *int       `json:"value_bytes"` // null: no value, a tombstone
	State           string     `json:"state,omitempty"`
	SupersededBy    string     `json:"superseded_by,omitempty"` // where the record's later letter stands
}

// wholeJSON is a letter as 'show --json' prints it.
type wholeJSON struct {
	letterJSON
	Stack   string       `json:"stack,omitempty"`
	History []string     `json:"history,omitempty"` // what each round ended with, of a record that was parked
	Headers []headerJSON `json:"headers"`
	// ValuePreview is the value as 'show' shows it, null for none: escaped, secrets replaced. --raw gives the bytes.
	ValuePreview *string `json:"value_preview"`
}

// headerJSON is a header as 'show' shows it.
type headerJSON struct {
	Key   string  `json:"key"`
	Value *string `json:"value"` // null: none
}

func wholeToJSON(e *dlq.Entry, r row) wholeJSON {
	j := wholeJSON{letterJSON: toJSON(r), Stack: e.Envelope.Stack, Headers: headersJSON(e.Headers)}
	if e.Envelope.History != "" {
		j.History = strings.Split(dlq.Message(errors.New(e.Envelope.History)), "\n")
	}
	if e.Value != nil {
		preview := dlq.Preview(e.Value, maxShown)
		j.ValuePreview = &preview
	}
	return j
}

func toJSON(r row) letterJSON {
	env := r.e.Envelope
	j := letterJSON{
		Topic: r.e.Topic, Partition: r.e.Partition, Offset: r.e.Offset, Written: timeJSON(r.e.Written), Format: string(r.e.Format),
		Source: env.Origin.Topic, SourceTimestamp: timeJSON(env.Timestamp), ID: env.Identity(), Group: env.Group, Route: env.Route,
		Reason: string(env.Reason), Class: env.Class, ErrorType: env.ErrorType, Error: dlq.Message(errors.New(env.Message)), Fingerprint: env.Fingerprint,
		Attempts: env.Attempts, Replays: env.Replays, FirstFailed: timeJSON(env.FirstFailed), LastFailed: timeJSON(env.LastFailed),
		State: string(r.outcome),
	}
	if env.Origin.Known() {
		j.SourcePartition, j.SourceOffset = &env.Origin.Partition, &env.Origin.Offset
	}
	if r.size >= 0 {
		j.ValueBytes = &r.size
	}
	if r.e.Later != nil {
		j.SupersededBy = r.e.Later.String()
	}
	j.Key, j.KeyBase64 = bytesJSON(r.e.Key)
	return j
}

func headersJSON(hs []record.Header) []headerJSON {
	list := make([]headerJSON, len(hs))
	for i, h := range hs {
		list[i] = headerJSON{Key: h.Key}
		if h.Value != nil {
			value := dlq.HeaderValue(h, 0)
			list[i].Value = &value
		}
	}
	return list
}

// bytesJSON is text where the bytes are text, else base64.
func bytesJSON(b []byte) (text *string, encoded string) {
	switch {
	case b == nil:
		return nil, ""
	case utf8.Valid(b):
		s := string(b)
		return &s, ""
	}
	return nil, base64.StdEncoding.EncodeToString(b)
}

// timeJSON is null for no time, and for one that JSON's format has no digits for: a record's timestamp may be any 64 bits
// of milliseconds, and one bad letter must not hide those behind it.
func timeJSON(t time.Time) *time.Time {
	utc := t.UTC()
	if t.IsZero() || utc.Year() < 0 || utc.Year() > 9999 {
		return nil
	}
	return &utc
}

// writeJSON writes a value on a line of its own. What could move a cursor or turn a line around is written as \u…, which
// means the same to whoever parses it.
func writeJSON(w io.Writer, v any) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	out := make([]byte, 0, line.Len())
	for _, r := range line.String() {
		if r == '\n' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	_, err := w.Write(out)
	return err
}
