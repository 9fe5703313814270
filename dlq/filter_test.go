package dlq_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	failed := full().LastFailed
	entry := func() *dlq.Entry {
		return &dlq.Entry{
			Topic: "orders.dlq", Partition: 3, Offset: 120, Written: failed.Add(time.Second), Format: dlq.FormatHeadrace,
			Key: []byte("account-7"), Envelope: full(),
		}
	}

	t.Run("EachFieldMatchesByAnyOfItsValues", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct{ yes, no dlq.Filter }{
			"nothing":   {dlq.Filter{}, dlq.Filter{Routes: []string{""}}},
			"format":    {dlq.Filter{Formats: []dlq.Format{"spring", "headrace"}}, dlq.Filter{Formats: []dlq.Format{"spring"}}},
			"reason":    {dlq.Filter{Reasons: []dlq.Reason{dlq.Manual, dlq.Panic}}, dlq.Filter{Reasons: []dlq.Reason{dlq.Manual}}},
			"source":    {dlq.Filter{Sources: []string{"x", "orders"}}, dlq.Filter{Sources: []string{"Orders"}}},
			"group":     {dlq.Filter{Groups: []string{"billing"}}, dlq.Filter{Groups: []string{"bill"}}},
			"route":     {dlq.Filter{Routes: []string{"post-order-to-ledger"}}, dlq.Filter{Routes: []string{"post"}}},
			"key":       {dlq.Filter{Keys: []string{"account-7"}}, dlq.Filter{Keys: []string{"account-", ""}}},
			"id":        {dlq.Filter{IDs: []string{"order-4711"}}, dlq.Filter{IDs: []string{"order-471", ""}}},
			"inbox id":  {dlq.Filter{IDs: []string{"C0FFEE00-0000-4000-8000-000000000001"}}, dlq.Filter{IDs: []string{uuid.Nil.String()}}},
			"at origin": {dlq.Filter{At: []dlq.Coordinates{{"orders", 3, 4711}}}, dlq.Filter{At: []dlq.Coordinates{{"orders", 3, 4712}}}},
			"at letter": {dlq.Filter{At: []dlq.Coordinates{{"orders.dlq", 3, 120}}}, dlq.Filter{At: []dlq.Coordinates{{"orders.dlq", 4, 120}}}},
			"since":     {dlq.Filter{Since: failed}, dlq.Filter{Since: failed.Add(1)}},
			"until":     {dlq.Filter{Until: failed.Add(1)}, dlq.Filter{Until: failed}},
			"all":       {dlq.Filter{Groups: []string{"billing"}, Keys: []string{"account-7"}}, dlq.Filter{Groups: []string{"billing"}, Keys: []string{"a"}}},
		} {
			require.True(t, c.yes.Match(entry()), name)
			require.False(t, c.no.Match(entry()), name)
		}
	})

	t.Run("AWatermillLetterIsFoundByItsUUID", func(t *testing.T) {
		t.Parallel()
		for id, headers := range map[string][]record.Header{
			"p-1":     append(poisoned(), record.Header{Key: record.UUIDHeader, Value: []byte("p-1")}),
			"/shop#1": append(poisoned(), record.Header{Key: "ce_id", Value: []byte("1")}, record.Header{Key: "ce_source", Value: []byte("/shop")}),
			"plain":   {{Key: record.UUIDHeader, Value: []byte("plain")}},
		} {
			headers = slices.DeleteFunc(headers, func(h record.Header) bool { return h.Key == record.UUIDHeader && len(h.Value) == 36 })
			e := dlq.NewEntry(&record.Record{Topic: "poison", Headers: headers})
			require.True(t, dlq.Filter{IDs: []string{id}}.Match(e), id)
			require.False(t, dlq.Filter{IDs: []string{id + "0", uuid.Nil.String()}}.Match(e), id)
		}
	})

	t.Run("AMissingKeyIsNotAnEmptyOne", func(t *testing.T) {
		t.Parallel()
		e, empty := entry(), dlq.Filter{Keys: []string{""}}
		e.Key = nil
		require.False(t, empty.Match(e))
		e.Key = []byte{}
		require.True(t, empty.Match(e))
		e.Key = []byte{0xff}
		require.True(t, dlq.Filter{Keys: []string{"\xff"}}.Match(e), "bytes that are no text")
	})

	t.Run("WithoutAFailureTheLettersTimeCounts", func(t *testing.T) {
		t.Parallel()
		e := entry()
		e.Envelope.LastFailed = time.Time{}
		require.True(t, dlq.Filter{Since: e.Written}.Match(e))
		require.False(t, dlq.Filter{Until: e.Written}.Match(e))
	})

	t.Run("ALetterWithoutIdentityHasNone", func(t *testing.T) {
		t.Parallel()
		e := entry()
		e.Envelope.ID, e.Envelope.MessageID = "", uuid.Nil
		require.False(t, dlq.Filter{IDs: []string{""}}.Match(e))
		require.Empty(t, e.Envelope.Identity())
		e.Envelope.MessageID = full().MessageID
		require.Equal(t, full().MessageID.String(), e.Envelope.Identity())
	})

	t.Run("WhatCanNeverMatchIsRefusedWithWhatCan", func(t *testing.T) {
		t.Parallel()
		for want, f := range map[string]dlq.Filter{
			`unknown format "kafka": it is one of headrace, watermill, spring, connect, unknown`:                                              {Formats: []dlq.Format{"kafka"}},
			`unknown reason "Panic": it is one of permanent, exhausted, unknown_outcome, undecodable, panic, id_conflict, crash_loop, manual`: {Reasons: []dlq.Reason{dlq.Manual, "Panic"}},
			`place "orders" is not topic/partition/offset, like orders/3/4711`:                                                                {At: []dlq.Coordinates{{"orders", -1, -1}}},
			`nothing is at or after 2026-11-30T00:00:00Z and before 2026-11-29T00:00:00Z`:                                                     {Since: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)},
		} {
			require.EqualError(t, f.Validate(), want)
		}
		require.NoError(t, dlq.Filter{Since: failed, Until: failed.Add(1), At: []dlq.Coordinates{{"orders", 0, 0}}}.Validate())
	})
}

func TestParseCoordinates(t *testing.T) {
	t.Parallel()
	got, err := dlq.ParseCoordinates("orders/3/4711")
	require.NoError(t, err)
	require.Equal(t, dlq.Coordinates{Topic: "orders", Partition: 3, Offset: 4711}, got)
	for _, bad := range []string{"", "orders", "orders/3", "/3/4711", "orders/-1/0", "orders/0/-1", "orders/x/1", "orders/3/", strings.Repeat("/", 1<<20)} {
		_, err := dlq.ParseCoordinates(bad)
		require.ErrorContains(t, err, "are not topic/partition/offset, like orders/3/4711", "%.20q", bad)
		require.Less(t, len(err.Error()), 10_000)
	}
}
