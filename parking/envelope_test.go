package parking_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// whole has something in each field that an envelope keeps.
func whole() *record.Record {
	return &record.Record{
		Topic: "orders", TopicID: uuid.MustParse("6f1a1f60-0000-4000-8000-000000000001"), Partition: 3, Offset: 4711, Follows: 4709,
		LeaderEpoch: 12, Timestamp: time.UnixMilli(1_790_000_000_123), Key: []byte("k"), Value: []byte{0, 1, 0xff},
		Headers: []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte("nameless")}},
		Replay:  true,
		Identity: record.Identity{
			ID: "order-7", Key: uuid.MustParse("6f1a1f60-0000-4000-8000-000000000002"), ValueHash: -5, Coordinates: 1 << 62,
			Place: uuid.MustParse("6f1a1f60-0000-4000-8000-000000000003"), FromCoordinates: true,
		},
	}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()

	t.Run("IsTheRecordByteForByte", func(t *testing.T) {
		t.Parallel()
		for name, change := range map[string]func(*record.Record){
			"Whole":         func(*record.Record) {},
			"NilKey":        func(r *record.Record) { r.Key = nil },
			"EmptyKey":      func(r *record.Record) { r.Key = []byte{} },
			"Tombstone":     func(r *record.Record) { r.Value = nil },
			"EmptyValue":    func(r *record.Record) { r.Value = []byte{} },
			"NoHeaders":     func(r *record.Record) { r.Headers = nil },
			"UnknownEpoch":  func(r *record.Record) { r.LeaderEpoch = -1 },
			"BeforeTheEra":  func(r *record.Record) { r.Timestamp = time.UnixMilli(-1) },
			"NoProducersID": func(r *record.Record) { r.Identity.FromCoordinates, r.Replay = false, false },
			"Big":           func(r *record.Record) { r.Value = bytes.Repeat([]byte("x"), 1<<20) },
		} {
			r := whole()
			change(r)
			back, err := parking.Decode(parking.Encode(r))
			require.NoError(t, err, name)
			require.Equal(t, r, back, name)
		}
	})

	t.Run("SharesNoMemory", func(t *testing.T) {
		t.Parallel()
		b := parking.Encode(whole())
		r, err := parking.Decode(b)
		require.NoError(t, err)
		for i := range b {
			b[i] = 0xaa
		}
		require.Equal(t, whole(), r)
	})

	t.Run("EveryCutIsRefused", func(t *testing.T) {
		t.Parallel()
		b := parking.Encode(whole())
		for n := range b {
			_, err := parking.Decode(b[:n:n])
			require.ErrorIs(t, err, parking.ErrEnvelope, "%d of %d bytes", n, len(b))
		}
		_, err := parking.Decode(append(b, 0))
		require.ErrorIs(t, err, parking.ErrEnvelope)
	})

	t.Run("ALaterVersionIsSaidToBeOne", func(t *testing.T) {
		t.Parallel()
		b := parking.Encode(whole())
		b[0] = 2
		_, err := parking.Decode(b)
		require.ErrorIs(t, err, parking.ErrEnvelope)
		require.ErrorContains(t, err, "version 2")
	})

	t.Run("HeadersThatAreNotThereCostNoMemory", func(t *testing.T) {
		t.Parallel()
		r := whole()
		r.Headers = nil
		b := parking.Encode(r)
		b = append(b[:len(b)-1], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
		_, err := parking.Decode(b)
		require.ErrorIs(t, err, parking.ErrEnvelope)
	})
}

func FuzzEnvelope(f *testing.F) {
	f.Add(parking.Encode(whole()))
	f.Add(parking.Encode(&record.Record{}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parking.Decode(b)
		if err != nil {
			require.ErrorIs(t, err, parking.ErrEnvelope)
			return
		}
		again := parking.Encode(r)
		require.Equal(t, b, again, "one record has one envelope")
	})
}

func TestHistory(t *testing.T) {
	t.Parallel()

	t.Run("KeepsTheFirstAndTheLatest", func(t *testing.T) {
		t.Parallel()
		var h parking.History
		for i := range 50 {
			h = h.With(parking.Failure{Attempts: i})
		}
		require.Len(t, h, 20)
		require.Zero(t, h[0].Attempts)
		require.Equal(t, 31, h[1].Attempts)
		require.Equal(t, 49, h[19].Attempts)
	})

	t.Run("ALongTextIsCutBetweenRunes", func(t *testing.T) {
		t.Parallel()
		h := parking.History(nil).With(parking.Failure{Message: strings.Repeat("ü", 400)})
		require.Equal(t, strings.Repeat("ü", 256), h[0].Message)
	})

	t.Run("ReadsAsALineARound", func(t *testing.T) {
		t.Parallel()
		at := time.Date(2026, 11, 30, 18, 0, 0, 0, time.UTC)
		h := parking.History(nil).With(parking.Failure{At: at, Attempts: 3, Class: "transient", Message: "no\nanswer"}).
			With(parking.Failure{At: at.Add(time.Minute), Attempts: 1, Class: "ambiguous", Message: "timeout"})
		require.Equal(t, "2026-11-30T18:00:00Z transient after 3 attempts: no answer\n"+
			"2026-11-30T18:01:00Z ambiguous after 1 attempts: timeout", h.String())
	})

	t.Run("WithLeavesTheOldOneAsItIs", func(t *testing.T) {
		t.Parallel()
		h := parking.History(nil).With(parking.Failure{Attempts: 1})
		a, b := h.With(parking.Failure{Attempts: 2}), h.With(parking.Failure{Attempts: 3})
		require.Equal(t, 2, a[1].Attempts)
		require.Equal(t, 3, b[1].Attempts)
	})
}

func FuzzHistory(f *testing.F) {
	f.Add([]byte(`[{"at":"2026-01-02T03:04:05Z","attempts":3,"class":"transient","message":"boom"}]`))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parking.DecodeHistory(b)
		if err == nil {
			_ = h.With(parking.Failure{})
		}
	})
}

func TestKeyID(t *testing.T) {
	t.Parallel()
	a := whole()
	id := func(change func(*record.Record), byKey bool) int64 {
		r := whole()
		change(r)
		return parking.KeyID(r, byKey)
	}
	same := func(*record.Record) {}
	later := func(r *record.Record) { r.Offset++ }
	require.Equal(t, parking.KeyID(a, true), id(later, true), "a later record of the key stands behind it")
	require.NotEqual(t, parking.KeyID(a, false), id(later, false), "without order each stands alone")
	require.NotEqual(t, id(same, true), id(func(r *record.Record) { r.Key = []byte("other") }, true))
	require.NotEqual(t, id(same, true), id(func(r *record.Record) { r.Partition++ }, true))
	require.NotEqual(t, id(same, true), id(func(r *record.Record) { r.TopicID = uuid.New() }, true))
	keyless := func(r *record.Record) { r.Key = nil }
	require.NotEqual(t, id(keyless, true), id(func(r *record.Record) { keyless(r); later(r) }, true), "no key is no common key")
	empty := func(r *record.Record) { r.Key = []byte{} }
	require.Equal(t, id(empty, true), id(func(r *record.Record) { empty(r); later(r) }, true), "an empty key is a key")
}
