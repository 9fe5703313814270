package audit

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// What is written down here a second time is what the engine writes: else the audit would name records that are well.
func TestFormats_AreTheEngines(t *testing.T) {
	t.Parallel()
	uuidText := uuid.NewString()
	at := func(value string, headers ...string) *record.Record {
		r := &record.Record{TopicID: uuid.MustParse("5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11"), Partition: 3, Offset: 120, Key: []byte("k")}
		if value != "" {
			r.Value = []byte(value)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Headers = append(r.Headers, record.Header{Key: headers[i], Value: []byte(headers[i+1])})
		}
		return r
	}
	for name, c := range map[string]struct {
		r     *record.Record
		of    Identity
		chain []dedup.Resolver
	}{
		"none":                 {at("{}"), Identity{}, dedup.DefaultIdentity()},
		"a tombstone":          {at(""), Identity{}, dedup.DefaultIdentity()},
		"watermill's":          {at("{}", watermillUUID, uuidText), Identity{}, dedup.DefaultIdentity()},
		"of a careless one":    {at("{}", watermillUUID, uuid.Nil.String()), Identity{}, dedup.DefaultIdentity()},
		"a CloudEvent's":       {at("{}", ceID, "7", ceSource, "/shop", watermillUUID, uuidText), Identity{}, dedup.DefaultIdentity()},
		"a CloudEvent's uuid":  {at("{}", ceID, uuidText, ceSource, "/shop"), Identity{}, dedup.DefaultIdentity()},
		"a header":             {at("{}", "id", "a"), Identity{Header: "id"}, []dedup.Resolver{dedup.Header("id")}},
		"bytes":                {at("{}", "id", "\xff\x01"), Identity{Header: "id"}, []dedup.Resolver{dedup.Header("id")}},
		"a field":              {at(`{"order":{"id":"a"}}`), Identity{Field: "order.id"}, []dedup.Resolver{dedup.Field("order.id")}},
		"a number":             {at(`{"id":1.0}`), Identity{Field: "id"}, []dedup.Resolver{dedup.Field("id")}},
		"a null":               {at(`{"id":null}`), Identity{Field: "id"}, []dedup.Resolver{dedup.Field("id")}},
		"a field that is none": {at(`{"id":{}}`), Identity{Field: "id"}, []dedup.Resolver{dedup.Field("id")}},
		"no JSON":              {at(`x`), Identity{Field: "id"}, []dedup.Resolver{dedup.Field("id")}},
	} {
		_ = dedup.Identify(c.r, c.chain...) // what cannot be read is known by its place
		want := c.r.Identity
		coordinates, place := placeOf(c.r.TopicID, c.r.Partition, c.r.Offset)
		require.Equal(t, want.Key, c.of.of(c.r, place), name)
		require.Equal(t, []any{want.Place, want.Coordinates, want.ValueHash}, []any{place, coordinates, valueHash(c.r.Value)}, name)
	}
	for _, key := range [][]byte{nil, {}, []byte("k")} {
		r := at("{}")
		r.Key = key
		require.Equal(t, [2]int64{parking.KeyID(r, true), parking.KeyID(r, false)}, linesOf(r.TopicID, r.Partition, r.Offset, r.Key))
	}
}
