package dedup

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestIdentify(t *testing.T) {
	t.Parallel()
	const id = "0198f3a2-5b1c-7def-8123-456789abcdef"
	headers := func(pairs ...string) (list []record.Header) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, record.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return list
	}
	chain := []Resolver{Header("id"), Field("order.id"), CloudEvents(), WatermillUUID()}

	for name, c := range map[string]struct {
		r    *record.Record
		want string
		err  bool
	}{
		"Header":              {r: &record.Record{Headers: headers("id", "a", "id", "b")}, want: "a"},
		"EmptyHeaderIsNone":   {r: &record.Record{Headers: headers("id", "", record.UUIDHeader, "w")}, want: "w"},
		"NilUUIDIsNone":       {r: &record.Record{Headers: headers("id", nilUUID, record.UUIDHeader, "w")}, want: "w"},
		"RawBytesAreHex":      {r: &record.Record{Headers: headers("id", "\xff\x00")}, want: "ff00"},
		"Field":               {r: &record.Record{Value: []byte(`{"order":{"id":"x"}}`)}, want: "x"},
		"NumberAsWritten":     {r: &record.Record{Value: []byte(`{"order":{"id":9007199254740993}}`)}, want: "9007199254740993"},
		"MissingFieldIsNone":  {r: &record.Record{Value: []byte(`{"order":{}}`), Headers: headers(record.UUIDHeader, "w")}, want: "w"},
		"NullFieldIsNone":     {r: &record.Record{Value: []byte(`{"order":null}`), Headers: headers(record.UUIDHeader, "w")}, want: "w"},
		"TombstoneHasNoField": {r: &record.Record{Headers: headers(record.UUIDHeader, "w")}, want: "w"},
		"CloudEvent":          {r: &record.Record{Headers: headers("ce_id", "1", "ce_source", "/shop")}, want: "/shop#1"},
		"CloudEventWithUUID":  {r: &record.Record{Headers: headers("ce_id", id, "ce_source", "/shop")}, want: id},
		"NoJSONCannotBeRead":  {r: &record.Record{Value: []byte("<xml>")}, err: true},
		"ObjectCannotBeRead":  {r: &record.Record{Value: []byte(`{"order":{"id":{}}}`)}, err: true},
		"TooLongCannotBeRead": {r: &record.Record{Headers: headers("id", strings.Repeat("x", maxID+1))}, err: true},
		"Nothing":             {r: &record.Record{Partition: 3, Offset: 7, TopicID: topicID}, want: topicID.String() + "/3/7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Identify(c.r, chain...)
			require.Equal(t, c.err, err != nil, "%v", err)
			if c.err {
				require.True(t, c.r.Identity.FromCoordinates)
				require.NotContains(t, err.Error(), "xml")
				return
			}
			require.Equal(t, c.want, c.r.Identity.ID)
		})
	}

	t.Run("UUIDIsItselfAndTextAUUIDv8", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, id, KeyOf(id).String())
		require.Equal(t, KeyOf(id), KeyOf(strings.ToUpper(id)))
		text := KeyOf("order-1")
		require.Equal(t, uuid.Version(8), text.Version())
		require.Equal(t, uuid.RFC4122, text.Variant())
		require.NotEqual(t, KeyOf(id), KeyOf("{"+id+"}"))
	})

	t.Run("TextOfACoordinateIsNotThatCoordinate", func(t *testing.T) {
		t.Parallel()
		r := record.Record{Partition: 3, Offset: 7, TopicID: topicID}
		require.NoError(t, Identify(&r))
		require.NotEqual(t, r.Identity.Key, KeyOf(r.Identity.ID))
	})

	t.Run("PlacesOfAPartitionStandSideBySide", func(t *testing.T) {
		t.Parallel()
		before := KeyAt(topicID, 3, 0)
		require.Equal(t, uuid.Version(8), before.Version())
		require.Equal(t, uuid.RFC4122, before.Variant())
		for _, offset := range []int64{1, 2, 255, 256, 1 << 32, 1<<62 - 1} {
			key := KeyAt(topicID, 3, offset)
			require.Equal(t, uuid.Version(8), key.Version())
			require.Equal(t, uuid.RFC4122, key.Variant())
			require.Equal(t, -1, bytes.Compare(before[:], key[:]), "the key of offset %d does not follow", offset)
			require.Equal(t, before[:8], key[:8])
			before = key
		}
	})

	t.Run("NoTwoPartitionsOfATopicShareAPlace", func(t *testing.T) {
		t.Parallel()
		known := map[uuid.UUID]int32{}
		at := func(partition int32) {
			key := KeyAt(topicID, partition, 7)
			other, found := known[key]
			require.False(t, found && other != partition, "partitions %d and %d", other, partition)
			known[key] = partition
		}
		for p := range int32(100_000) {
			at(p)
			at(math.MaxInt32 - p)
			at(1<<16*(p%(1<<15)) + 1)
		}
	})

	t.Run("NilAndEmptyValuesDiffer", func(t *testing.T) {
		t.Parallel()
		require.NotEqual(t, hashValue(nil), hashValue([]byte{}))
	})

	t.Run("RecreatedTopicIsAnotherPlace", func(t *testing.T) {
		t.Parallel()
		a, b := record.Record{TopicID: topicID}, record.Record{TopicID: uuid.UUID{1}}
		require.NotEqual(t, placeOf(&a), placeOf(&b))
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add("id", "", []byte(`{"id":1}`), true)
	f.Add("ce_id", "x", []byte(nil), false)
	f.Add(record.UUIDHeader, "\xff", []byte(`{"id":"\ud800"}`), true)
	f.Add("headrace-id", "a b", []byte(`[`), true)
	f.Fuzz(func(t *testing.T, header, value string, payload []byte, replayed bool) {
		identify := func() (record.Identity, error) {
			r := record.Record{
				TopicID: topicID, Value: payload, Replay: replayed,
				Headers: []record.Header{{Key: header, Value: []byte(value)}},
			}
			chain := []Resolver{Header("id"), Field("id"), CloudEvents(), WatermillUUID()}
			if replayed {
				err := IdentifyReplay(&r, ReplayOf{ID: value}, chain...)
				return r.Identity, err
			}
			err := Identify(&r, chain...)
			return r.Identity, err
		}
		first, err := identify()
		again, errAgain := identify()
		require.Equal(t, first, again)
		require.Equal(t, err == nil, errAgain == nil)
		require.NotEmpty(t, first.ID)
		require.LessOrEqual(t, len(first.ID), maxID)
		require.NotEqual(t, uuid.Nil, first.Key)
		if err != nil {
			require.True(t, first.FromCoordinates)
		}
		copied := record.Record{Value: payload, Replay: true, Offset: 1}
		require.NoError(t, IdentifyReplay(&copied, ReplayOf{ID: first.ID, Key: first.Key, TopicID: topicID}))
		require.NotEqual(t, first.Coordinates, copied.Identity.Coordinates)
		copied.Identity.Coordinates = first.Coordinates
		require.Equal(t, first, copied.Identity, "a replay is the same record")
	})
}
