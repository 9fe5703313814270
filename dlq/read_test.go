package dlq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// stored is a letter of a source's record as it stands in the dead letter topic.
func stored(topic, from string, offset int64, value string) *kgo.Record {
	env := full()
	env.Origin = dlq.Coordinates{Topic: from, Offset: offset}
	r := &kgo.Record{Topic: topic, Value: []byte(value)}
	for _, h := range env.Append(nil) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

// transact writes letters in a transaction and ends it so.
func transact(t *testing.T, brokers []string, end kgo.TransactionEndTry, records ...*kgo.Record) {
	t.Helper()
	client := kafkatest.Client(t, brokers, kgo.TransactionalID(kafkatest.Name(t)))
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	require.NoError(t, client.EndTransaction(t.Context(), end))
}

// readAll gives all letters that Read gives.
func readAll(t *testing.T, cfg dlq.ReadConfig) ([]*dlq.Entry, dlq.Snapshot) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []*dlq.Entry
	snapshot, err := dlq.Read(ctx, cfg, func(e *dlq.Entry) error { got = append(got, e); return nil })
	require.NoError(t, err)
	require.EqualValues(t, len(got), snapshot.Matched)
	require.Len(t, snapshot.Ends, snapshot.Partitions)
	return got, snapshot
}

// valuesOf are the values of letters in order.
func valuesOf(entries []*dlq.Entry) []string {
	values := []string{}
	for _, e := range entries {
		values = append(values, string(e.Value))
	}
	return values
}

// TestRead is the suite that the fake broker and the real one pass.
func TestRead(t *testing.T) {
	t.Parallel()
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": func(t *testing.T) []string { t.Helper(); return kafkatest.Fake(t).ListenAddrs() },
		"Real": func(t *testing.T) []string { t.Helper(); return kafkatest.Real(t).Brokers() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, test := range readTests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					addrs := brokers(t)
					topic := kafkatest.Topic(t, addrs, 3)
					test(t, addrs, topic)
				})
			}
		})
	}
}

var readTests = map[string]func(t *testing.T, brokers []string, topic string){
	"AnEmptyTopicEnds": func(t *testing.T, brokers []string, topic string) {
		got, snapshot := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.Empty(t, got)
		require.Equal(t, dlq.Snapshot{Partitions: 3, Ends: map[int32]int64{0: 0, 1: 0, 2: 0}}, snapshot)
	},

	"LettersComeByPartitionAndOffset": func(t *testing.T, brokers []string, topic string) {
		var written []*kgo.Record
		for i := range 30 {
			r := stored(topic, "orders", int64(i), fmt.Sprint(i))
			r.Partition = int32(i % 2) // one partition stays empty
			written = append(written, r)
		}
		kafkatest.Produce(t, brokers, written...)
		got, snapshot := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.Len(t, got, 30)
		for i, e := range got {
			require.Equal(t, dlq.FormatHeadrace, e.Format)
			require.EqualValues(t, i/15, e.Partition)
			require.EqualValues(t, i%15, e.Offset)
			require.Equal(t, fmt.Sprint(e.Envelope.Origin.Offset), string(e.Value))
			require.Equal(t, topic, e.Topic)
			require.NotZero(t, e.TopicID)
			require.WithinDuration(t, time.Now(), e.Written, time.Hour)
		}
		require.Equal(t, dlq.Snapshot{Partitions: 3, Ends: map[int32]int64{0: 15, 1: 15, 2: 0}, Records: 30, Matched: 30}, snapshot)
	},

	"AbortedTransactionsAtHeadAndTailAreNotThere": func(t *testing.T, brokers []string, topic string) {
		transact(t, brokers, kgo.TryAbort, stored(topic, "orders", 0, "aborted"), stored(topic, "orders", 1, "aborted"))
		transact(t, brokers, kgo.TryCommit, stored(topic, "orders", 2, "a"), stored(topic, "orders", 3, "b"))
		kafkatest.Produce(t, brokers, stored(topic, "orders", 4, "c"))
		transact(t, brokers, kgo.TryAbort, stored(topic, "orders", 5, "aborted"))
		got, _ := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.ElementsMatch(t, []string{"a", "b", "c"}, valuesOf(got))
	},

	"ATopicOfNothingButAbortedTransactionsEnds": func(t *testing.T, brokers []string, topic string) {
		for range 3 {
			transact(t, brokers, kgo.TryAbort, stored(topic, "orders", 0, "aborted"))
		}
		got, _ := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.Empty(t, got)
	},

	"ATransactionThatIsStillOpenIsNotWaitedFor": func(t *testing.T, brokers []string, topic string) {
		kafkatest.Produce(t, brokers, stored(topic, "orders", 0, "before"))
		client := kafkatest.Client(t, brokers, kgo.TransactionalID(kafkatest.Name(t)))
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), stored(topic, "orders", 1, "open")).FirstErr())
		got, _ := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.Equal(t, []string{"before"}, valuesOf(got))
		require.NoError(t, client.EndTransaction(t.Context(), kgo.TryAbort))
	},

	"WhatRetentionHasTakenIsNotThere": func(t *testing.T, brokers []string, topic string) {
		for i := range 10 {
			kafkatest.Produce(t, brokers, stored(topic, "orders", int64(i), fmt.Sprint(i)))
		}
		deleteBefore(t, brokers, topic, 7)
		got, snapshot := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.Equal(t, []string{"7", "8", "9"}, valuesOf(got))
		require.EqualValues(t, 3, snapshot.Records)
		deleteBefore(t, brokers, topic, 10)
		got, _ = readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.Empty(t, got)
	},

	"RetentionMayTakeLettersWhileTheyAreRead": func(t *testing.T, brokers []string, topic string) {
		for p := range int32(2) {
			for i := range 5 {
				r := stored(topic, "orders", int64(i)+100*int64(p), "x")
				r.Partition = p
				kafkatest.Produce(t, brokers, r)
			}
		}
		var got []int64
		_, err := dlq.Read(t.Context(), dlq.ReadConfig{Client: clientOf(brokers), Topic: topic}, func(e *dlq.Entry) error {
			if e.Partition == 0 && e.Offset == 0 {
				offsets := kadm.Offsets{}
				offsets.AddOffset(topic, 1, 4, -1)
				_, err := kafkatest.Admin(t, brokers).DeleteRecords(t.Context(), offsets)
				require.NoError(t, err)
			}
			got = append(got, e.Envelope.Origin.Offset)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, []int64{0, 1, 2, 3, 4, 104}, got)
	},

	"NewFailuresAndNewPartitionsAreForTheNextTime": func(t *testing.T, brokers []string, topic string) {
		kafkatest.Produce(t, brokers, stored(topic, "orders", 0, "first"), stored(topic, "orders", 1, "second"))
		var got []string
		snapshot, err := dlq.Read(t.Context(), dlq.ReadConfig{Client: clientOf(brokers), Topic: topic}, func(e *dlq.Entry) error {
			if len(got) == 0 {
				_, err := kafkatest.Admin(t, brokers).CreatePartitions(t.Context(), 2, topic)
				require.NoError(t, err)
			}
			for i := range 3 { // each letter brings three more
				kafkatest.Produce(t, brokers, stored(topic, "orders", 100*e.Offset+int64(i), "late"))
			}
			got = append(got, string(e.Value))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"first", "second"}, got)
		require.Equal(t, 3, snapshot.Partitions)
	},

	"WhateverAProducerWroteIsAnEntry": func(t *testing.T, brokers []string, topic string) {
		many := make([]kgo.RecordHeader, 10_000)
		for i := range many {
			many[i] = kgo.RecordHeader{Key: "headrace-topic", Value: []byte("t")}
		}
		hostile := [][]kgo.RecordHeader{
			nil,
			{{Key: "headrace-dlq", Value: []byte("9")}},
			{{Key: "headrace-topic"}, {Key: "headrace-dlq", Value: []byte("1")}, {}},
			{{Key: "kafka_dlt-original-offset", Value: []byte{1}}},
			{{Key: "x", Value: bytes.Repeat([]byte{0xff}, 900_000)}},
			many,
		}
		for _, hs := range hostile {
			kafkatest.Produce(t, brokers, &kgo.Record{Topic: topic, Headers: hs})
		}
		got, snapshot := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		require.Len(t, got, len(hostile))
		require.EqualValues(t, len(hostile), snapshot.Unknown)
		for i, e := range got {
			require.Equal(t, dlq.FormatUnknown, e.Format)
			require.Len(t, e.Headers, len(hostile[i]))
			require.False(t, e.Envelope.Origin.Known())
			require.Nil(t, e.Key)
			require.Nil(t, e.Value)
		}
	},

	"ARecordIsGivenOnceByItsLatestLetter": func(t *testing.T, brokers []string, topic string) {
		write := func(partition int32, change func(*dlq.Envelope)) {
			env := full()
			env.Replays, env.Message = 0, "first"
			change(&env)
			r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("v")}
			for _, h := range env.Append(nil) {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
			}
			kafkatest.Produce(t, brokers, r)
		}
		write(2, func(e *dlq.Envelope) { e.Replays, e.Message = 1, "replayed and dead again" })
		write(0, func(*dlq.Envelope) {})
		write(1, func(e *dlq.Envelope) { e.Message = "its answer was lost" })
		write(0, func(e *dlq.Envelope) { e.Route, e.Message = "another-route", "another route's" })
		write(0, func(e *dlq.Envelope) { e.TopicID[0]++; e.Message = "another topic's" })
		got, snapshot := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic})
		var messages []string
		for _, e := range got {
			messages = append(messages, e.Envelope.Message)
		}
		require.Equal(t, []string{"another route's", "another topic's", "replayed and dead again"}, messages)
		require.Equal(t, dlq.Snapshot{Partitions: 3, Ends: map[int32]int64{0: 3, 1: 1, 2: 1}, Records: 5, Repeated: 2, Matched: 3}, snapshot)

		filter := dlq.Filter{At: []dlq.Coordinates{{Topic: topic, Partition: 1}}}
		got, _ = readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic, Filter: filter})
		require.Len(t, got, 1, "it was asked for by its own place")
		require.Equal(t, "its answer was lost", got[0].Envelope.Message)
		require.Equal(t, &dlq.Coordinates{Topic: topic, Partition: 2}, got[0].Later)
		summary, err := dlq.Replay(t.Context(), dlq.ReplayConfig{Read: dlq.ReadConfig{Client: clientOf(brokers), Topic: topic, Filter: filter}})
		require.NoError(t, err)
		require.Equal(t, map[dlq.Skip]int64{dlq.SkipSuperseded: 1}, summary.Skipped, "it is not to be replayed beside its later one")

		got, _ = readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic, Filter: dlq.Filter{At: []dlq.Coordinates{full().Origin}, Routes: []string{full().Route}}})
		for _, e := range got {
			require.Nil(t, e.Later, "by the record's place it is the latest")
		}
	},

	"SinceLeavesTheRestOfTheTopicUnread": func(t *testing.T, brokers []string, topic string) {
		now := time.Now().Truncate(time.Millisecond)
		for i, age := range []time.Duration{72 * time.Hour, 48 * time.Hour, 2 * time.Minute, 0} {
			env := full()
			env.Origin.Offset, env.LastFailed = int64(i), now.Add(-age)
			r := &kgo.Record{Topic: topic, Timestamp: now.Add(-age), Value: fmt.Append(nil, i)}
			for _, h := range env.Append(nil) {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
			}
			kafkatest.Produce(t, brokers, r)
		}
		cfg := dlq.ReadConfig{Client: clientOf(brokers), Topic: topic, Filter: dlq.Filter{Since: now.Add(-2 * time.Minute)}}
		got, snapshot := readAll(t, cfg)
		require.Equal(t, []string{"2", "3"}, valuesOf(got))
		require.EqualValues(t, 2, snapshot.Records)
		cfg.Filter = dlq.Filter{Since: now.Add(-50 * time.Hour), Until: now}
		got, _ = readAll(t, cfg)
		require.Equal(t, []string{"1", "2"}, valuesOf(got))
		cfg.Filter = dlq.Filter{Since: now.Add(24 * time.Hour)}
		got, _ = readAll(t, cfg)
		require.Empty(t, got)
	},

	"ATopicThatIsMissingIsNamed": func(t *testing.T, brokers []string, topic string) {
		_, err := dlq.Read(t.Context(), dlq.ReadConfig{Client: clientOf(brokers), Topic: topic + ".no"}, nil)
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)
		require.ErrorContains(t, err, topic+".no")
	},

	"TheCallersErrorEndsItAsItIs": func(t *testing.T, brokers []string, topic string) {
		kafkatest.Produce(t, brokers, stored(topic, "orders", 0, "a"), stored(topic, "orders", 1, "b"))
		enough := errors.New("enough")
		snapshot, err := dlq.Read(t.Context(), dlq.ReadConfig{Client: clientOf(brokers), Topic: topic}, func(*dlq.Entry) error { return enough })
		require.Equal(t, enough, err)
		require.EqualValues(t, 1, snapshot.Matched)
	},

	"ItEndsWithItsContext": func(t *testing.T, brokers []string, topic string) {
		kafkatest.Produce(t, brokers, stored(topic, "orders", 0, "a"), stored(topic, "orders", 1, "b"))
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the operator went home")
		var seen int
		_, err := dlq.Read(ctx, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic}, func(*dlq.Entry) error {
			seen++
			cancel(why)
			return nil
		})
		require.ErrorIs(t, err, why)
		require.Equal(t, 1, seen)
	},
}

func deleteBefore(t *testing.T, brokers []string, topic string, offset int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, offset, -1)
	deleted, err := kafkatest.Admin(t, brokers).DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
}

func TestRead_CompactionLeavesGapsUpToTheEnd(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Start(t, 1, "log.cleaner.backoff.ms=50", "log.cleaner.min.compaction.lag.ms=0").Brokers()
	topic := kafkatest.Topic(t, brokers, 1, "cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "0.001")
	write := func(key string, i int64) {
		r := stored(topic, "orders", i, key)
		r.Key = []byte(key)
		kafkatest.Produce(t, brokers, r)
	}
	filler := func() { // fills a segment, so that the one before may be compacted
		r := &kgo.Record{Topic: topic, Key: []byte("filler"), Value: noise(t, 900_000)}
		kafkatest.Produce(t, brokers, r, &kgo.Record{Topic: topic, Key: []byte("filler"), Value: noise(t, 900_000)})
	}
	for i := range int64(50) {
		write("a", i)
	}
	write("b", 50)
	filler()
	for i := range int64(50) {
		write("a", 51+i)
	}
	filler()
	filler()
	require.Eventually(t, func() bool { return len(kafkatest.ReadAll(t, brokers, topic)) < 60 }, patience, 100*time.Millisecond, "nothing was compacted")
	got, _ := readAll(t, dlq.ReadConfig{Client: clientOf(brokers), Topic: topic, Filter: dlq.Filter{Formats: []dlq.Format{dlq.FormatHeadrace}}})
	require.Contains(t, valuesOf(got), "b")
	require.EqualValues(t, 100, got[len(got)-1].Envelope.Origin.Offset)
}

func TestRead_Faults(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (*kfake.Cluster, dlq.ReadConfig) {
		t.Helper()
		fake, brokers := orders(t)
		for i := range int64(3) {
			kafkatest.Produce(t, brokers, stored("orders.dlq", "orders", i, fmt.Sprint(i)))
		}
		return fake, dlq.ReadConfig{Client: clientOf(brokers), Topic: "orders.dlq"}
	}

	t.Run("ALeaderThatMovesIsFound", func(t *testing.T) {
		t.Parallel()
		for _, moved := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.FencedLeaderEpoch, kerr.UnknownServerError} {
			fake, cfg := start(t)
			fault := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: moved, Count: 2})
			got, _ := readAll(t, cfg)
			require.Equal(t, []string{"0", "1", "2"}, valuesOf(got), moved.Message)
			require.Equal(t, 2, fault.Hits())
		}
	})

	t.Run("AMissingPermissionIsToldAtOnce", func(t *testing.T) {
		t.Parallel()
		fake, cfg := start(t)
		fault := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		_, err := dlq.Read(t.Context(), cfg, nil)
		require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
		require.ErrorContains(t, err, "orders.dlq/0/0")
		require.Equal(t, 1, fault.Hits())
	})

	t.Run("ABrokerThatIsGoneIsWaitedForUntilTheContextEnds", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t)
		topic := kafkatest.Topic(t, fake.ListenAddrs(), 2)
		second := stored(topic, "orders", 1, "b")
		second.Partition = 1
		kafkatest.Produce(t, fake.ListenAddrs(), stored(topic, "orders", 0, "a"), second)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the operator went home")
		var given int
		_, err := dlq.Read(ctx, dlq.ReadConfig{Client: clientOf(fake.ListenAddrs()), Topic: topic}, func(*dlq.Entry) error {
			given++
			fake.Close()
			time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
			return nil
		})
		require.Equal(t, why, err)
		require.Equal(t, 1, given)
	})

	t.Run("AClusterThatIsNotThereIsToldSoon", func(t *testing.T) {
		t.Parallel()
		fake, cfg := start(t)
		fake.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := dlq.Read(ctx, cfg, nil)
		require.ErrorContains(t, err, `read "orders.dlq": unable to dial`)
		require.NoError(t, ctx.Err())
	})
}

func TestRead_RefusesWhatCanNeverMatch(t *testing.T) {
	t.Parallel()
	_, err := dlq.Read(t.Context(), dlq.ReadConfig{Topic: "orders.dlq"}, nil)
	require.ErrorIs(t, err, kafka.ErrNoBrokers)
	_, err = dlq.Read(t.Context(), dlq.ReadConfig{Client: clientOf([]string{"b:1"})}, nil)
	require.ErrorContains(t, err, "ReadConfig.Topic is empty")
	_, err = dlq.Read(t.Context(), dlq.ReadConfig{
		Client: clientOf([]string{"b:1"}), Topic: "orders.dlq", Filter: dlq.Filter{Reasons: []dlq.Reason{"tired"}},
	}, nil)
	require.ErrorContains(t, err, `unknown reason "tired": it is one of permanent, exhausted`)
}

func TestNewEntry_KeepsWhatTheRecordIs(t *testing.T) {
	t.Parallel()
	r := &record.Record{
		Topic: "orders.dlq", Partition: 2, Offset: 9, Timestamp: time.UnixMilli(5).UTC(), Key: []byte{}, Value: nil,
		Headers: full().Append([]record.Header{{Key: "a"}, {Key: "a", Value: []byte{}}}),
	}
	e := dlq.NewEntry(r)
	require.Equal(t, dlq.FormatHeadrace, e.Format)
	require.Equal(t, full(), e.Envelope)
	require.Equal(t, []record.Header{{Key: "a"}, {Key: "a", Value: []byte{}}}, e.Headers)
	require.Equal(t, dlq.Coordinates{Topic: "orders.dlq", Partition: 2, Offset: 9}, e.Place())
	require.NotNil(t, e.Key)
	require.Nil(t, e.Value)
	require.Equal(t, full().LastFailed, e.Failed())
	e.Envelope.LastFailed = time.Time{}
	require.Equal(t, r.Timestamp, e.Failed())
}
