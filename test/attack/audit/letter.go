package audit

import (
	"bytes"
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// markHeader is the last one of a letter; its value says how many before it are the envelope.
const markHeader = "headrace-dlq"

// Letter is a record of a dead letter topic.
type Letter struct {
	Topic  string
	Record *kgo.Record
}

// letter is one with its envelope taken off.
type letter struct {
	at      place
	record  *kgo.Record
	headers []kgo.RecordHeader // the original ones
	fields  map[string]string
}

// open takes the envelope off; false for what is no letter.
func open(r *kgo.Record) (letter, bool) {
	n := len(r.Headers) - 1
	if n < 0 || r.Headers[n].Key != markHeader {
		return letter{}, false
	}
	ours, err := strconv.Atoi(string(r.Headers[n].Value))
	if err != nil || ours < 1 || ours > n {
		return letter{}, false
	}
	l := letter{record: r, headers: r.Headers[:n-ours], fields: map[string]string{}}
	for _, h := range r.Headers[n-ours : n] {
		l.fields[h.Key] = string(h.Value)
	}
	partition, err := strconv.ParseInt(l.fields["headrace-partition"], 10, 32)
	offset, err2 := strconv.ParseInt(l.fields["headrace-offset"], 10, 64)
	l.at = place{int32(partition), offset}
	return l, err == nil && err2 == nil
}

// differs says what of the letter is not the record's, "" for nothing.
func (l letter) differs(r *kgo.Record) string {
	switch {
	case !same(l.record.Key, r.Key):
		return "key"
	case !same(l.record.Value, r.Value):
		return "value"
	case !slices.EqualFunc(l.headers, r.Headers, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && same(a.Value, b.Value) }):
		return "headers"
	case l.fields["headrace-timestamp"] != strconv.FormatInt(r.Timestamp.UnixMilli(), 10):
		return "timestamp"
	}
	return ""
}

// same tells nil from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// Letters reads what stands in a dead letter topic now.
func Letters(ctx context.Context, brokers []string, name string) ([]Letter, error) {
	rd, err := newReader(brokers)
	if err != nil {
		return nil, err
	}
	defer rd.close()
	t, err := rd.read(ctx, name)
	if err != nil {
		return nil, err
	}
	found := make([]Letter, len(t.records))
	for i, r := range t.records {
		found[i] = Letter{name, r}
	}
	return found, nil
}
