package dedup

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestIdentifyReplay(t *testing.T) {
	t.Parallel()
	const id = "0198f3a2-5b1c-7def-8123-456789abcdef"
	first := spot{topicID, 3, 7}
	origin := ReplayOf{TopicID: topicID, Partition: 3, Offset: 7}
	known := func(key uuid.UUID, text string) ReplayOf {
		of := origin
		of.Key, of.ID = key, text
		return of
	}
	here := func(headers ...record.Header) *record.Record {
		return &record.Record{
			TopicID: replayTopicID, Partition: 1, Offset: 70, Value: []byte("v"), Replay: true, Headers: headers,
		}
	}
	named := record.Header{Key: "id", Value: []byte("of-a-header")}
	for name, c := range map[string]struct {
		r    *record.Record
		of   ReplayOf
		id   string
		key  uuid.UUID
		from bool
	}{
		"KeepsAUUID":                           {here(named), known(uuid.MustParse(id), ""), id, uuid.MustParse(id), false},
		"KeepsAText":                           {here(named), known(KeyOf("order-1"), "order-1"), "order-1", KeyOf("order-1"), false},
		"KeepsItsFirstCoordinates":             {here(), known(first.place().key, first.String()), first.String(), first.place().key, true},
		"NewIdIsAnotherRecord":                 {here(named), known(uuid.MustParse(id), "edited"), "edited", uuid.MustParse(id), false},
		"TextThatNoIdentityCanHave":            {here(), known(KeyOf("x"), strings.Repeat("x", maxID+1)), KeyOf("x").String(), KeyOf("x"), false},
		"ForeignLetterWithAnIdentity":          {here(named), origin, "of-a-header", KeyOf("of-a-header"), false},
		"ForeignLetterIsKnownByWhereItWas":     {here(), origin, first.String(), first.place().key, true},
		"ForeignLetterOfWhoKnowsWhereIsItself": {here(), ReplayOf{}, replayTopicID.String() + "/1/70", placeOf(here()).key, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, IdentifyReplay(c.r, c.of, Header("id")))
			require.Equal(t, record.Identity{
				ID: c.id, Key: c.key, FromCoordinates: c.from,
				ValueHash: HashValue([]byte("v")), Coordinates: placeOf(here()).hash,
			}, c.r.Identity)
		})
	}

	t.Run("IdentityThatCannotBeReadIsKnownByWhereItWas", func(t *testing.T) {
		t.Parallel()
		r := here()
		require.ErrorIs(t, IdentifyReplay(r, origin, Field("id")), errIdentity)
		require.Equal(t, first.place().key, r.Identity.Key)
	})
}
