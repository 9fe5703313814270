package e2e

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
)

// plenty is how many ordinary records the happy path has.
const plenty = 20_000

func TestLedger(t *testing.T) {
	t.Parallel()

	t.Run("HoldsForEveryKindOfRecordOnTwoRoutes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Real(t).Brokers(), 8)
		w.routes = []string{"post", "notify"}
		want := w.everyKind()
		m := w.start(w.setup())
		w.drained()
		m.quit()
		got := w.audit()
		for _, route := range w.routes {
			require.Equal(t, want, got[route], route)
			require.Equal(t, map[string]int{
				"permanent": 12 + 11, "exhausted": 6, "panic": 5, "undecodable": 7, "id_conflict": 4,
			}, w.reasons(route), route)
			require.Equal(t, 1, w.copies(route), route)
		}
	})
}

// everyKind fills the topic with all that a topic may hold, mixed, and says what is to become of it.
func (w *world) everyKind() tally {
	w.t.Helper()
	ordinary := w.orders(plenty, 500, order{})
	odd := w.oddities()
	again := ordinary[100:150] // a producer's duplicates: the same id and value, once more
	conflicts := make([]*kgo.Record, 4)
	for i := range conflicts {
		conflicts[i] = w.record("conflict", order{Do: "other bytes", N: i})
		conflicts[i].Headers = ordinary[i].Headers
	}
	half := len(ordinary) / 2
	w.produce(append(fresh(ordinary[:half]), odd...)...)
	w.produce(append(append(fresh(ordinary[half:]), fresh(again)...), conflicts...)...)
	return tally{
		Records: plenty + len(odd) + len(again) + len(conflicts),
		// oddities that have their effect: 20 flaky, 30 without an id, 8 without a key, 11 hostile
		Effected: plenty + 20 + 30 + 8 + 11, Duplicate: len(again), Skipped: 9,
		Dead: 12 + 11 + 6 + 5 + 7 + len(conflicts),
	}
}

// fresh copies records, for a client writes where it put them into what it is given.
func fresh(rs []*kgo.Record) []*kgo.Record {
	copies := make([]*kgo.Record, len(rs))
	for i, r := range rs {
		copies[i] = &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	return copies
}

func (w *world) oddities() []*kgo.Record {
	var rs []*kgo.Record
	rs = append(rs, w.orders(9, 3, order{Do: "skip"})...)
	rs = append(rs, w.orders(10, 10, order{Do: "fail"})...)
	rs = append(rs, w.orders(2, 2, order{Do: "constraint"})...)
	rs = append(rs, w.orders(20, 10, order{Do: "flaky", N: 1})...)
	rs = append(rs, w.orders(6, 6, order{Do: "flaky", N: 99})...)
	rs = append(rs, w.orders(5, 5, order{Do: "panic"})...)
	for i := range 6 {
		r := w.record(fmt.Sprintf("garbage-%d", i), order{})
		r.Value = []byte("{\xff not json")
		rs = append(rs, r)
	}
	tombstone := w.record("tombstone", order{})
	tombstone.Value = nil
	rs = append(rs, tombstone)
	for i := range 30 { // foreign: no id, and an empty one
		r := w.record(fmt.Sprintf("foreign-%d", i%7), order{N: i % 3}) // the same bytes again and again
		if r.Headers = nil; i%2 == 0 {
			r.Headers = []kgo.RecordHeader{{Key: uuidHeader, Value: []byte{}}}
		}
		rs = append(rs, r)
	}
	for i := range 8 {
		r := w.record("", order{})
		r.Partition = int32(i)
		rs = append(rs, r)
	}
	return append(append(rs, w.hostile(order{})...), w.hostile(order{Do: "fail"})...)
}

// hostile are records whose headers use our own names and every odd value.
func (w *world) hostile(o order) []*kgo.Record {
	id := func() kgo.RecordHeader { return kgo.RecordHeader{Key: uuidHeader, Value: []byte(uuid.NewString())} }
	values := [][]byte{
		nil, {}, {0}, []byte("123456789"), []byte("-1"), []byte("3000-01-01T00:00:00.000Z"), []byte("\xff\xfe"),
	}
	var rs []*kgo.Record
	for _, v := range values {
		r := w.record("hostile", o)
		r.Headers = []kgo.RecordHeader{id()}
		for _, name := range []string{
			markHeader, "headrace-attempts", "headrace-offset", "headrace-route", "headrace-id", "headrace_records", "", "\xff",
		} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: v}, kgo.RecordHeader{Key: name, Value: v})
		}
		rs = append(rs, r)
	}
	forged := w.record("hostile", o) // a whole envelope
	forged.Headers = append(forged.Headers, kgo.RecordHeader{Key: "headrace-reason", Value: []byte("permanent")},
		kgo.RecordHeader{Key: markHeader, Value: []byte("1")})
	many := w.record("hostile", o)
	for range 10_000 {
		many.Headers = append(many.Headers, kgo.RecordHeader{Key: "headrace-attempts", Value: []byte("1")})
	}
	large := w.record("hostile", o)
	large.Headers = append(large.Headers, kgo.RecordHeader{Key: "headrace-error-message", Value: make([]byte, 900_000)})
	text := w.record("hostile", o) // an id that is no UUID
	text.Headers = []kgo.RecordHeader{{Key: uuidHeader, Value: []byte("order 4711/" + o.Do)}}
	return append(rs, forged, many, large, text)
}
