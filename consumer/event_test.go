package consumer

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestEvent(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1700000000123)
	r := &record.Record{
		Topic: "orders", Partition: 3, Offset: 42, Timestamp: at, Key: []byte("k"), Value: []byte(`{"Amount":7}`),
		Headers:  []record.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "n"}},
		Identity: record.Identity{ID: "id-1"}, Attempts: 1,
	}
	require.NoError(t, decodeInto[placed](nil)(r))
	r.Begin()
	e := eventOf[placed](r)
	require.Equal(t, Event[placed]{
		Data: placed{Amount: 7}, ID: "id-1", Key: r.Key, Headers: r.Headers,
		Topic: "orders", Partition: 3, Offset: 42, Timestamp: at, Attempt: 2,
	}, e)

	first, ok := e.Header("a")
	require.True(t, ok)
	require.Equal(t, "1", string(first))
	empty, ok := e.Header("n")
	require.True(t, ok)
	require.Nil(t, empty)
	_, ok = e.Header("none")
	require.False(t, ok)
}

func TestDecode(t *testing.T) {
	t.Parallel()

	t.Run("JSONRefusesWhatIsNoJSON", func(t *testing.T) {
		t.Parallel()
		for _, value := range []string{"", "{", `{"Amount":"x"}`, `{"Amount":1} trailing`, "\xff"} {
			require.Error(t, JSON(&record.Record{Value: []byte(value)}, new(placed)), "%q", value)
		}
	})

	t.Run("ATombstoneIsUndecodableUnlessTheRouteKnowsIt", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, JSON(&record.Record{}, new(placed)), errTombstone)
		mine := Decoder(func(r *record.Record, into any) error {
			into.(*placed).Amount = len(r.Value) - 1
			return nil
		})
		r := &record.Record{}
		require.NoError(t, decodeInto[placed](mine)(r))
		require.Equal(t, -1, eventOf[placed](r).Data.Amount)
	})

	t.Run("BytesComeAsTheyAre", func(t *testing.T) {
		t.Parallel()
		for _, value := range [][]byte{nil, {}, []byte("\xff\x00"), []byte(`"text"`)} {
			r := &record.Record{Value: value}
			require.NoError(t, decodeInto[[]byte](nil)(r))
			require.Equal(t, value, eventOf[[]byte](r).Data)
			require.NoError(t, decodeInto[json.RawMessage](nil)(r))
			require.Equal(t, value, []byte(eventOf[json.RawMessage](r).Data))
		}
	})

	t.Run("AnErrorLeavesNoEvent", func(t *testing.T) {
		t.Parallel()
		boom := errors.New("boom")
		r := &record.Record{Value: []byte("x")}
		require.ErrorIs(t, decodeInto[placed](Values(func([]byte, any) error { return boom }))(r), boom)
		require.Nil(t, r.Event)
	})
}

// FuzzJSON: whatever the bytes, decoding neither panics nor changes them, and gives what encoding/json gives.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{"", "null", `{"Amount":1}`, `{"Amount":1e400}`, "[", "\x00", `{"Amount":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		before := string(value)
		r := &record.Record{Value: value}
		err := decodeInto[map[string]any](nil)(r)
		require.Equal(t, before, string(value))
		require.Equal(t, err == nil, r.Event != nil)
		if value != nil {
			sameAsEncodingJSON(t, value)
		}
	})
}
