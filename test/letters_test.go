package e2e

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// letter is a dead letter with its envelope taken off.
type letter struct {
	key, value []byte
	headers    []kgo.RecordHeader // the original ones
	fields     map[string]string  // ours
}

// openLetter takes the envelope off by position: the last header says how many before it are ours.
func openLetter(r *kgo.Record) (letter, bool) {
	n := len(r.Headers) - 1
	if n < 0 || r.Headers[n].Key != markHeader {
		return letter{}, false
	}
	ours, err := strconv.Atoi(string(r.Headers[n].Value))
	if err != nil || ours < 1 || ours > n {
		return letter{}, false
	}
	l := letter{key: r.Key, value: r.Value, headers: r.Headers[:n-ours], fields: map[string]string{}}
	for _, h := range r.Headers[n-ours : n] {
		l.fields[h.Key] = string(h.Value)
	}
	return l, true
}

func (l letter) place() (place, bool) {
	partition, err := strconv.ParseInt(l.fields["headrace-partition"], 10, 32)
	offset, err2 := strconv.ParseInt(l.fields["headrace-offset"], 10, 64)
	return place{int32(partition), offset}, err == nil && err2 == nil
}

// differs says what of the letter is not the record's, "" for nothing.
func (l letter) differs(r *kgo.Record) string {
	switch {
	case !same(l.key, r.Key):
		return "key"
	case !same(l.value, r.Value):
		return "value"
	case !slices.EqualFunc(l.headers, r.Headers, func(a, b kgo.RecordHeader) bool {
		return a.Key == b.Key && same(a.Value, b.Value)
	}):
		return "headers"
	case l.fields["headrace-timestamp"] != strconv.FormatInt(r.Timestamp.UnixMilli(), 10):
		return "timestamp"
	}
	return ""
}

// same tells nil from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// readLetters are the dead letters of the world's topic by route and by the place of the record that died. What cannot
// be read as a letter of one of the world's routes stands under "".
func (w *world) readLetters() map[string]map[place][]letter {
	w.t.Helper()
	found := map[string]map[place][]letter{}
	for _, r := range w.read(w.deadLetters) {
		l, ok := openLetter(r)
		if slices.Contains(w.neighbours, l.fields["headrace-group"]) {
			continue
		}
		at, whole := l.place()
		route := l.fields["headrace-route"]
		if !ok || !whole || l.fields["headrace-topic"] != w.topic || l.fields["headrace-group"] != w.group || !slices.Contains(w.routes, route) {
			route, at = "", placeOf(r)
		}
		if found[route] == nil {
			found[route] = map[place][]letter{}
		}
		found[route][at] = append(found[route][at], l)
	}
	return found
}

// replayTopic is the one from which the world's group alone reads what is replayed.
func (w *world) replayTopic() string { return w.topic + "." + w.group + ".replay" }

// readReplays are the records of the replay topic; none if there is no such topic.
func (w *world) readReplays() []*kgo.Record {
	w.t.Helper()
	return w.read(w.replayTopic())
}

// reasons counts a route's dead records by reason.
func (w *world) reasons(route string) map[string]int {
	w.t.Helper()
	got := map[string]int{}
	for _, letters := range w.readLetters()[route] {
		got[letters[0].fields["headrace-reason"]]++
	}
	return got
}

// copies is how many letters there are of the record that has most.
func (w *world) copies(route string) int {
	w.t.Helper()
	most := 0
	for _, letters := range w.readLetters()[route] {
		most = max(most, len(letters))
	}
	return most
}

// noLetters requires that nobody died.
func (w *world) noLetters() {
	w.t.Helper()
	require.Empty(w.t, w.readLetters(), "healthy records in the dead letter topic")
}

// size is what the letter says, in bytes.
func (l letter) size() int {
	n := len(l.key) + len(l.value)
	for _, h := range l.headers {
		n += len(h.Key) + len(h.Value)
	}
	for name, value := range l.fields {
		n += len(name) + len(value)
	}
	return n
}
