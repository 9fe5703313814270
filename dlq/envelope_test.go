package dlq_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

var update = flag.Bool("update", false, "write the golden files")

// full is an envelope with every field set.
func full() dlq.Envelope {
	at := time.Date(2026, 11, 30, 0, 14, 39, 120_000_000, time.UTC)
	return dlq.Envelope{
		Origin:      dlq.Coordinates{Topic: "orders", Partition: 3, Offset: 4711},
		TopicID:     uuid.MustParse("5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11"),
		Timestamp:   at.Add(-time.Hour),
		Latest:      dlq.Coordinates{Topic: "orders.billing.replay", Partition: 1, Offset: 12},
		MessageID:   uuid.MustParse("c0ffee00-0000-4000-8000-000000000001"),
		ID:          "order-4711",
		Group:       "billing",
		Route:       "post-order-to-ledger",
		Reason:      dlq.Panic,
		Class:       "permanent",
		ErrorType:   "*fault.PanicError",
		Message:     "panic: assignment to entry in nil map",
		Stack:       "main.apply\n\t/app/main.go:42",
		Fingerprint: "9f2d5e0b7c1a4483",
		Attempts:    3,
		FirstFailed: at,
		LastFailed:  at.Add(8 * time.Second),
		Replays:     2,
	}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	t.Run("WhatIsWrittenIsFixed", func(t *testing.T) {
		t.Parallel()
		var got bytes.Buffer
		for _, h := range full().Append([]record.Header{{Key: "trace-id", Value: []byte("4bf9")}}) {
			fmt.Fprintf(&got, "%s: %q\n", h.Key, h.Value)
		}
		golden := filepath.Join("testdata", "envelope.golden")
		if *update {
			require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), got.String())
	})

	t.Run("EveryFieldIsReadAsItWasWritten", func(t *testing.T) {
		t.Parallel()
		for name, env := range map[string]dlq.Envelope{"full": full(), "empty": {Timestamp: time.UnixMilli(-1).UTC()}} {
			got, original, ok := dlq.Decode(env.Append(nil))
			require.True(t, ok, name)
			require.Nil(t, original)
			require.Equal(t, env, got, name)
		}
	})

	t.Run("OriginalHeadersComeBackAsTheyWere", func(t *testing.T) {
		t.Parallel()
		for name, hs := range map[string][]record.Header{
			"none":           nil,
			"repeated names": {{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte{0xff}}},
			"no name":        {{}, {Key: "", Value: []byte{}}},
			"names of ours":  {{Key: "headrace-route", Value: []byte("mine")}, {Key: "headrace-topic"}},
			"a forged mark":  {{Key: "x"}, {Key: dlq.MarkHeader, Value: []byte("9")}},
			"a true one":     full().Append(nil),
		} {
			got, original, ok := dlq.Decode(full().Append(hs))
			require.True(t, ok, name)
			require.Equal(t, hs, original, name)
			require.Equal(t, full(), got, name)
		}
	})

	t.Run("AppendingLeavesTheRecordAlone", func(t *testing.T) {
		t.Parallel()
		backing := make([]record.Header, 1, 64)
		full().Append(backing)
		require.Equal(t, record.Header{}, backing[:2][1])
		_, original, _ := dlq.Decode(full().Append([]record.Header{{Key: "a"}}))
		require.Equal(t, 1, cap(original), "appending to the original headers must not write over the envelope")
	})

	t.Run("AMarkThatDoesNotFitIsData", func(t *testing.T) {
		t.Parallel()
		ours := record.Header{Key: "headrace-topic", Value: []byte("orders")}
		for _, mark := range []string{"", "0", "-1", "01", "+1", " 1", "3", "9", "65", "1000000000000", "1x", "\x00", strings.Repeat("1", 1<<20)} {
			hs := []record.Header{{Key: "x"}, ours, {Key: dlq.MarkHeader, Value: []byte(mark)}}
			env, original, ok := dlq.Decode(hs)
			require.False(t, ok, "%.20q", mark)
			require.Equal(t, hs, original)
			require.Zero(t, env)
		}
		for name, hs := range map[string][]record.Header{
			"nil mark":        {ours, {Key: dlq.MarkHeader}},
			"mark not last":   {ours, {Key: dlq.MarkHeader, Value: []byte("1")}, {Key: "x"}},
			"foreign header":  {{Key: "x"}, {Key: dlq.MarkHeader, Value: []byte("1")}},
			"mark below mark": {{Key: dlq.MarkHeader, Value: []byte("1")}, {Key: dlq.MarkHeader, Value: []byte("1")}},
			"nothing":         nil,
		} {
			_, original, ok := dlq.Decode(hs)
			require.False(t, ok, name)
			require.Equal(t, hs, original, name)
		}
	})

	t.Run("HostileValuesAreZeroValues", func(t *testing.T) {
		t.Parallel()
		numeric := []string{
			"topic-id", "partition", "offset", "timestamp", "latest", "message-id", "attempts", "first-failed", "last-failed", "replays",
		}
		for _, hostile := range [][]byte{nil, {}, {0}, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff"), []byte("1e9"), []byte("a/-1/-1"), bytes.Repeat([]byte("9"), 1<<20)} {
			var hs []record.Header
			for _, name := range numeric {
				hs = append(hs, record.Header{Key: dlq.Prefix + name, Value: hostile})
			}
			hs = append(hs, record.Header{Key: dlq.MarkHeader, Value: []byte(strconv.Itoa(len(numeric)))})
			env, _, ok := dlq.Decode(hs)
			require.True(t, ok)
			require.Zero(t, env, "%.20q", hostile)
		}
		env, _, ok := dlq.Decode([]record.Header{{Key: "headrace-attempts", Value: []byte("-5")}, {Key: "headrace-replays", Value: []byte("9999999999")}, {Key: dlq.MarkHeader, Value: []byte("2")}})
		require.True(t, ok)
		require.Zero(t, env)
	})

	t.Run("TenThousandHeadersAreNotOurs", func(t *testing.T) {
		t.Parallel()
		hs := make([]record.Header, 10_000)
		for i := range hs {
			hs[i] = record.Header{Key: "headrace-topic", Value: []byte("t")}
		}
		hs = append(hs, record.Header{Key: dlq.MarkHeader, Value: []byte("10000")})
		_, _, ok := dlq.Decode(hs)
		require.False(t, ok)
	})

	t.Run("AnUnknownFieldOfALaterVersionIsStripped", func(t *testing.T) {
		t.Parallel()
		env, original, ok := dlq.Decode([]record.Header{
			{Key: "x"},
			{Key: "headrace-moon", Value: []byte("full")},
			{Key: "headrace-route", Value: []byte("r")},
			{Key: dlq.MarkHeader, Value: []byte("2")},
		})
		require.True(t, ok)
		require.Equal(t, []record.Header{{Key: "x"}}, original)
		require.Equal(t, "r", env.Route)
	})

	t.Run("AnIdentityIsWholeOrAbsent", func(t *testing.T) {
		t.Parallel()
		for size, want := range map[int]int{0: 0, 1: 1, 1024: 1024, 1025: 0, 1 << 20: 0} {
			env, _, ok := dlq.Decode([]record.Header{{Key: "headrace-id", Value: bytes.Repeat([]byte("x"), size)}, {Key: dlq.MarkHeader, Value: []byte("1")}})
			require.True(t, ok)
			require.Len(t, env.ID, want)
		}
		plain := full()
		plain.ID = ""
		require.Len(t, plain.Append(nil), len(full().Append(nil))-1, "left out where the message id says it")
	})

	t.Run("WhatIsReplayedIsWhole", func(t *testing.T) {
		t.Parallel()
		hs := []record.Header{{Key: "headrace-route", Value: []byte("mine")}}
		for name, change := range map[string]func(*dlq.Envelope){
			"full":              func(*dlq.Envelope) {},
			"another system's":  func(e *dlq.Envelope) { e.MessageID, e.TopicID, e.ID = uuid.Nil, uuid.Nil, "" },
			"first and last":    func(e *dlq.Envelope) { e.Origin.Partition, e.Origin.Offset = 1<<31-1, 1<<63-1 },
			"beginning of time": func(e *dlq.Envelope) { e.Timestamp = time.UnixMilli(-1 << 63) },
			"end of time":       func(e *dlq.Envelope) { e.Timestamp = time.UnixMilli(1<<63 - 1) },
		} {
			env := full()
			change(&env)
			got, original, err := dlq.DecodeReplayed(env.Append(hs))
			require.NoError(t, err, name)
			require.Equal(t, hs, original)
			require.Equal(t, env.Timestamp.UnixMilli(), got.Timestamp.UnixMilli())
		}
		for name, change := range map[string]func(*dlq.Envelope){
			"never replayed": func(e *dlq.Envelope) { e.Replays = 0 },
			"no topic":       func(e *dlq.Envelope) { e.Origin.Topic = "../etc" },
			"no route":       func(e *dlq.Envelope) { e.Route = "" },
			"before all":     func(e *dlq.Envelope) { e.Origin.Offset = -1 },
		} {
			env := full()
			change(&env)
			_, original, err := dlq.DecodeReplayed(env.Append(hs))
			require.Error(t, err, name)
			require.Equal(t, env.Append(hs), original, "it is data")
		}
		_, _, err := dlq.DecodeReplayed(hs)
		require.Error(t, err)
	})

	t.Run("CoordinatesReadAsAPath", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "orders/3/4711", full().Origin.String())
	})
}

// FuzzEnvelope appends an envelope to any headers and takes it off again, and decodes any headers at all.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(nil), "", "", int32(0), int64(0), int64(0), uint8(0))
	f.Add([]byte("a\x01b\x00headrace-dlq\x039"), "orders", "boom", int32(3), int64(7), int64(-1), uint8(2))
	f.Add([]byte("headrace-topic\x02t\x01headrace-dlq\x011"), "\xff", "\x00", int32(1<<31-1), int64(1<<62), int64(1<<62), uint8(255))
	f.Fuzz(func(t *testing.T, raw []byte, topic, message string, partition int32, offset, millis int64, attempts uint8) {
		hs := headersFrom(raw)
		_, kept, ok := dlq.Decode(hs)
		if !ok {
			require.Equal(t, hs, kept)
		}
		if e, original, err := dlq.DecodeReplayed(hs); err != nil {
			require.Equal(t, hs, original)
		} else {
			require.True(t, e.Origin.Known())
		}
		env := dlq.Envelope{
			Origin: dlq.Coordinates{Topic: topic, Partition: partition & (1<<31 - 1), Offset: offset & (1<<63 - 1)},
			// What milliseconds can say and a Time can hold.
			Timestamp: time.UnixMilli(millis % (1 << 53)).UTC(),
			Message:   message,
			Attempts:  int(attempts),
		}
		env.Latest = env.Origin
		got, original, ok := dlq.Decode(env.Append(hs))
		require.True(t, ok)
		require.Equal(t, hs, original)
		require.Equal(t, env, got)
	})
}

// headersFrom makes headers of fuzzed bytes: names and values alternate, a length byte before each value, 0 for nil.
func headersFrom(raw []byte) []record.Header {
	var hs []record.Header
	for len(raw) > 0 {
		i := bytes.IndexFunc(raw, func(r rune) bool { return r < 32 })
		if i < 0 {
			return append(hs, record.Header{Key: string(raw)})
		}
		h, n := record.Header{Key: string(raw[:i])}, int(raw[i])
		raw = raw[i+1:]
		if n > 0 {
			n = min(n-1, len(raw))
			h.Value = append([]byte{}, raw[:n]...)
			raw = raw[n:]
		}
		hs = append(hs, h)
	}
	return hs
}

func BenchmarkAppend(b *testing.B) {
	env, hs := full(), []record.Header{{Key: "trace-id", Value: []byte("4bf9")}}
	b.ReportAllocs()
	for b.Loop() {
		env.Append(hs)
	}
}

func BenchmarkDecode(b *testing.B) {
	hs := full().Append([]record.Header{{Key: "trace-id", Value: []byte("4bf9")}})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := dlq.Decode(hs); !ok {
			b.Fatal(errors.New("no envelope"))
		}
	}
}
