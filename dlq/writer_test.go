package dlq_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// patience is how long a test waits for what must come: generous, because only a broken one ever uses it up.
const patience = 30 * time.Second

var errBoom = errors.New("no account for order 17")

func clientOf(brokers []string) kafka.ClientConfig {
	return kafka.ClientConfig{Brokers: brokers, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func writer(t *testing.T, cfg dlq.WriterConfig) *dlq.Writer {
	t.Helper()
	w, err := dlq.NewWriter(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

// letterOf is a letter for a record of a source topic whose dead letter topic is source+".dlq".
func letterOf(r *record.Record) dlq.Letter {
	return dlq.Letter{Record: r, Reason: dlq.Permanent, Class: "permanent", Err: errBoom, Attempts: 1, Group: "billing", Route: "post"}
}

func headers(r *kgo.Record) []record.Header {
	var hs []record.Header
	for _, h := range r.Headers {
		hs = append(hs, record.Header{Key: h.Key, Value: h.Value})
	}
	return hs
}

func size(r *kgo.Record) int {
	return kafka.ProducerRecord{Key: r.Key, Value: r.Value, Headers: headers(r)}.Size()
}

// largest is the largest record that a topic with this max.message.bytes takes.
func largest(t *testing.T, topic string, limit int) *record.Record {
	t.Helper()
	r := &record.Record{Topic: topic, Key: []byte("k"), Value: noise(t, limit)}
	over := kafka.ProducerRecord{Key: r.Key, Value: r.Value}.Size() - limit
	r.Value = r.Value[over:]
	return r
}

// hexNoise is text that compresses to half.
func hexNoise(t *testing.T, n int) []byte {
	t.Helper()
	return []byte(hex.EncodeToString(noise(t, n/2)))
}

// requireHeld wants the error that holds a record: the dead letter topic is at fault and the record is not.
func requireHeld(t *testing.T, err error) {
	t.Helper()
	f := (&fault.Classifier{}).Classify(t.Context(), err)
	require.Equal(t, fault.ClassUnavailable, f.Class, "%v", err)
	require.Equal(t, fault.DeadLetterTopic, f.Dependency)
}

// nextOf reads one record.
func nextOf(t *testing.T, reader *kgo.Client) *kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		fetches := reader.PollRecords(ctx, 1)
		require.NoError(t, fetches.Err())
		if got := fetches.Records(); len(got) > 0 {
			return got[0]
		}
	}
}

// noise does not compress.
func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return b
}

// topicOf creates a topic and waits until the broker knows it. configs are pairs of name and value.
func topicOf(t *testing.T, brokers []string, name string, partitions int, configs ...string) string {
	t.Helper()
	spec := kafka.TopicSpec{Name: name, Partitions: partitions, Configs: map[string]string{}}
	for pair := range slices.Chunk(configs, 2) {
		spec.Configs[pair[0]] = pair[1]
	}
	require.NoError(t, adminOf(t, brokers).CreateTopic(t.Context(), spec))
	return name
}

// source creates a dead letter topic and gives the name of its source.
func source(t *testing.T, brokers []string, partitions int, configs ...string) string {
	t.Helper()
	name := kafkatest.Name(t)
	topicOf(t, brokers, dlq.DefaultTopic(name), partitions, configs...)
	return name
}

// TestWriter is the suite that the fake broker and the real one pass.
func TestWriter(t *testing.T) {
	t.Parallel()
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": func(t *testing.T) []string { t.Helper(); return kafkatest.Fake(t).ListenAddrs() },
		"Real": func(t *testing.T) []string { t.Helper(); return kafkatest.Real(t).Brokers() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, test := range writerTests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, brokers(t))
				})
			}
		})
	}
}

var writerTests = map[string]func(t *testing.T, brokers []string){
	"LettersAreTheirRecordsByteForByte": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 1)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		records := []*record.Record{
			{}, // a tombstone without a key
			{Key: []byte{}, Value: []byte{}},
			{Key: []byte{0xff, 0xfe}, Value: []byte{0}, Headers: []record.Header{
				{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte{0xff}}, {},
			}},
		}
		for i, r := range records {
			r.Topic, r.Offset = from, int64(i)
			require.NoError(t, w.Write(t.Context(), letterOf(r)))
		}
		for i, got := range kafkatest.ReadAll(t, brokers, dlq.DefaultTopic(from)) {
			env, original, ok := dlq.Decode(headers(got))
			require.True(t, ok)
			require.Equal(t, records[i].Key, got.Key)
			require.Equal(t, records[i].Value, got.Value)
			require.Equal(t, records[i].Headers, original)
			require.Equal(t, dlq.Coordinates{Topic: from, Offset: int64(i)}, env.Origin)
		}
	},

	"TheEnvelopeSaysWhereWhyAndHowOften": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 3)
		at := time.Date(1999, 12, 31, 23, 59, 59, 123_000_000, time.UTC)
		r := &record.Record{
			Topic: from, Partition: 2, Offset: 41, TopicID: uuid.New(), Timestamp: at, Value: []byte("v"),
			Identity: record.Identity{ID: "x", Key: uuid.New()},
		}
		var told []record.DeadLetterInfo
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers), Group: "billing", Hooks: &record.Hooks{
			OnDeadLetter: func(i record.DeadLetterInfo) { told = append(told, i) },
		}})
		before := time.Now().Add(-time.Minute)
		require.NoError(t, w.Write(t.Context(), dlq.Letter{
			Record: r, Reason: dlq.Panic, Class: "permanent", Err: fmt.Errorf("handler: %w", &fault.PanicError{Value: "boom", Stack: []byte("main.go:42")}),
			Attempts: 3, FirstFailed: at, LastFailed: at.Add(time.Second), Route: "post",
		}))

		got := kafkatest.ReadAll(t, brokers, dlq.DefaultTopic(from))[0]
		require.EqualValues(t, 2, got.Partition)
		require.WithinRange(t, got.Timestamp, before, time.Now().Add(time.Minute))
		env, _, ok := dlq.Decode(headers(got))
		require.True(t, ok)
		require.NotEmpty(t, env.Fingerprint)
		require.Equal(t, env.Fingerprint, told[0].Fingerprint)
		env.Fingerprint, told[0].Fingerprint = "", ""
		here := dlq.Coordinates{Topic: from, Partition: 2, Offset: 41}
		require.Equal(t, dlq.Envelope{
			Origin: here, Latest: here, TopicID: r.TopicID, Timestamp: at, MessageID: r.Identity.Key, ID: "x",
			Group: "billing", Route: "post", Reason: dlq.Panic, Class: "permanent", ErrorType: "*fault.PanicError",
			Message: "handler: panic: boom", Stack: "main.go:42", Attempts: 3, FirstFailed: at, LastFailed: at.Add(time.Second),
		}, env)
		require.Equal(t, []record.DeadLetterInfo{
			{Route: "post", Topic: from, Reason: "panic", Partition: 2, Offset: 41, Message: "handler: panic: boom"},
		}, told)
	},

	"AnEverLargerPartitionNumberIsWrittenAllTheSame": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 2)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		for p := range int32(6) {
			require.NoError(t, w.Write(t.Context(), letterOf(&record.Record{Topic: from, Partition: p, Key: []byte("k")})))
		}
		got := kafkatest.ReadAll(t, brokers, dlq.DefaultTopic(from))
		require.Len(t, got, 6)
		for _, r := range got {
			env, _, ok := dlq.Decode(headers(r))
			require.True(t, ok)
			if env.Origin.Partition < 2 {
				require.Equal(t, env.Origin.Partition, r.Partition)
			}
		}
	},

	"AMegabyteOfErrorTextFits": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 1, "max.message.bytes", "100000")
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		l := letterOf(&record.Record{Topic: from, Value: noise(t, 80_000)})
		l.Err = errors.New("postgres://app:s3cr3t@db " + strings.Repeat("水\xff", 1<<18))
		require.NoError(t, w.Write(t.Context(), l))
		env, _, _ := dlq.Decode(headers(kafkatest.ReadAll(t, brokers, dlq.DefaultTopic(from))[0]))
		require.LessOrEqual(t, len(env.Message), 4096)
		require.NotContains(t, env.Message, "s3cr3t")
	},

	"OneTooLargeAmong500HarmsNoOther": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 1, "max.message.bytes", "20000")
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers), Timeout: patience})
		var writes sync.WaitGroup
		errs := make([]error, 500)
		for i := range errs {
			value := noise(t, 100)
			if i == 250 {
				value = noise(t, 30_000)
			}
			writes.Go(func() {
				errs[i] = w.Write(t.Context(), letterOf(&record.Record{Topic: from, Offset: int64(i), Value: value}))
			})
		}
		writes.Wait()

		var tooLarge *dlq.TooLargeError
		require.ErrorIs(t, errs[250], dlq.ErrTooLarge)
		require.ErrorAs(t, errs[250], &tooLarge)
		require.Greater(t, tooLarge.Original, 30_000)
		require.Greater(t, tooLarge.Letter, tooLarge.Original)
		require.Contains(t, tooLarge.Hint(), "max.message.bytes of topic "+dlq.DefaultTopic(from))
		require.ErrorContains(t, errs[250], from+"/0/250 of 30")
		requireHeld(t, errs[250])
		errs[250] = nil
		require.NoError(t, errors.Join(errs...))
		got := kafkatest.ReadAll(t, brokers, dlq.DefaultTopic(from))
		require.Len(t, got, 499)
		seen := map[int64]bool{}
		for _, r := range got {
			env, _, _ := dlq.Decode(headers(r))
			seen[env.Origin.Offset] = true
			require.Equal(t, errBoom.Error(), env.Message, "a neighbour of one too large is not to be trimmed")
		}
		require.Len(t, seen, 499)
	},

	"ALargerRecordLosesItsStackThenItsMessageAndIsHeldLast": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 1, "max.message.bytes", "20000")
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		long := string(hexNoise(t, 4000))
		var err error
		for size := 7_000; err == nil; size += max(64, (18_000-size)/2) {
			l := letterOf(&record.Record{Topic: from, Value: noise(t, size)})
			l.Err = errors.Join(&fault.PanicError{Value: "x", Stack: hexNoise(t, 8000)}, errors.New(long))
			err = w.Write(t.Context(), l)
		}
		require.ErrorIs(t, err, dlq.ErrTooLarge)
		requireHeld(t, err)

		var seen []string
		for _, r := range kafkatest.ReadAll(t, brokers, dlq.DefaultTopic(from)) {
			env, _, ok := dlq.Decode(headers(r))
			require.True(t, ok)
			require.NotEmpty(t, env.Fingerprint)
			seen = append(seen, fmt.Sprintf("message %d, stack %t", len(env.Message), env.Stack != ""))
		}
		require.Equal(t, []string{"message 4009, stack true", "message 256, stack false", "message 0, stack false"}, slices.Compact(seen))
	},

	"WhateverAProducerForgedIsData": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 1)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		many := make([]record.Header, 10_000)
		for i := range many {
			many[i] = record.Header{Key: "headrace-replays", Value: []byte("7")}
		}
		forged := [][]record.Header{
			{{Key: "headrace-topic", Value: []byte("elsewhere")}, {Key: "headrace-dlq", Value: []byte("9")}},
			{{Key: "headrace-dlq"}},
			full().Append([]record.Header{{Key: "trace"}}),
			append(many, record.Header{Key: "headrace-dlq", Value: []byte("63")}),
			{{Key: "headrace-attempts", Value: bytes.Repeat([]byte("9"), 100_000)}},
		}
		for i, hs := range forged {
			require.NoError(t, w.Write(t.Context(), letterOf(&record.Record{Topic: from, Offset: int64(i), Headers: hs})))
		}
		for i, r := range kafkatest.ReadAll(t, brokers, dlq.DefaultTopic(from)) {
			env, original, ok := dlq.Decode(headers(r))
			require.True(t, ok)
			require.Equal(t, forged[i], original)
			require.Equal(t, dlq.Coordinates{Topic: from, Offset: int64(i)}, env.Origin)
			require.Zero(t, env.Replays)
		}
	},

	"FiftyPassesChangeNothing": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 3)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		original := []record.Header{{Key: "headrace-topic", Value: []byte("mine")}, {Key: "a"}, {Key: "a", Value: []byte{}}}
		first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		next := &record.Record{Topic: from, Partition: 1, Offset: 100, Key: []byte("k"), Value: []byte("v"), Headers: original, TopicID: uuid.New(), Timestamp: first}
		var last *kgo.Record
		var counts, sizes []int
		reader := kafkatest.Client(t, brokers, kgo.ConsumeTopics(dlq.DefaultTopic(from)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for pass := range 50 {
			l := letterOf(next)
			l.FirstFailed, l.LastFailed = first.AddDate(0, 0, pass), first.AddDate(0, 0, pass)
			l.Err = fmt.Errorf("pass %02d", pass)
			require.NoError(t, w.Write(t.Context(), l))
			last = nextOf(t, reader)
			counts, sizes = append(counts, len(last.Headers)), append(sizes, size(last))

			env, kept, ok := dlq.Decode(headers(last))
			require.True(t, ok)
			env.Replays++
			next = &record.Record{
				Topic: from + ".billing.replay", Partition: 2, Offset: 100 + int64(pass), Replay: true,
				Key: []byte("k"), Value: []byte("v"), Headers: env.Append(kept),
			}
		}
		require.Equal(t, slices.Repeat([]int{counts[0]}, 50), counts)
		// The first pass was not read from a replay topic; Replays has a digit more from the tenth on.
		require.Equal(t, sizes[1], sizes[9])
		require.Equal(t, sizes[1]+1, sizes[49])
		env, kept, ok := dlq.Decode(headers(last))
		require.True(t, ok)
		require.Equal(t, original, kept)
		require.Equal(t, dlq.Coordinates{Topic: from, Partition: 1, Offset: 100}, env.Origin)
		require.Equal(t, dlq.Coordinates{Topic: from + ".billing.replay", Partition: 2, Offset: 148}, env.Latest)
		require.Equal(t, first, env.FirstFailed)
		require.Equal(t, first, env.Timestamp)
		require.Equal(t, first.AddDate(0, 0, 49), env.LastFailed)
		require.Equal(t, "pass 49", env.Message)
		require.Equal(t, 49, env.Replays)
		require.EqualValues(t, 1, last.Partition)
	},
}
