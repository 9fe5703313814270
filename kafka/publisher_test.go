package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestPublisher(t *testing.T) {
	t.Parallel()
	t.Run("KeysValuesAndHeadersArriveByteForByte", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.SeedTopics(1, "t"))
		sent := []kafka.ProducerRecord{
			{Topic: "t"},
			{Topic: "t", Key: []byte{}, Value: []byte{}, Headers: []record.Header{{Key: ""}}},
			{Topic: "t", Key: []byte{0xff, 0}, Value: []byte("v"), Headers: []record.Header{
				{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte{0xfe}},
			}},
		}
		require.NoError(t, publisher(t, kafka.PublisherConfig{Client: client}).PublishRecords(t.Context(), sent...))

		for i, got := range consume(t, client, "t", len(sent)) {
			require.Equal(t, sent[i].Key, got.Key)
			require.Equal(t, sent[i].Value, got.Value)
			require.Len(t, got.Headers, len(sent[i].Headers))
			for j, h := range got.Headers {
				require.Equal(t, kgo.RecordHeader(sent[i].Headers[j]), h)
			}
		}
	})

	t.Run("AMessageBecomesItsUUIDItsMetadataAndItsKey", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.SeedTopics(1, "t"))
		msg := message.NewMessage("id-1", []byte("payload"))
		msg.Metadata = message.Metadata{"z": "last", "a": "first", record.CountKey: "1"}
		kafka.SetKey(msg, []byte{0xff})
		tombstone := message.NewMessage("id-2", nil)
		kafka.SetKey(tombstone, nil)
		require.NoError(t, publisher(t, kafka.PublisherConfig{Client: client}).Publish("t", msg.Copy(), tombstone))

		got := consume(t, client, "t", 2)
		require.Equal(t, []kgo.RecordHeader{
			{Key: record.UUIDHeader, Value: []byte("id-1")},
			{Key: "a", Value: []byte("first")},
			{Key: "z", Value: []byte("last")},
		}, got[0].Headers)
		require.Equal(t, []byte{0xff}, got[0].Key)
		require.Nil(t, got[1].Value)
		require.NotNil(t, got[1].Key)
	})

	t.Run("KeysCanBeComputed", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.SeedTopics(1, "t"))
		pub := publisher(t, kafka.PublisherConfig{Client: client, Key: func(topic string, msg *message.Message) ([]byte, error) {
			if len(msg.Payload) == 0 {
				return nil, errors.New("no payload, no key")
			}
			return append([]byte(topic), msg.Payload...), nil
		}})
		require.NoError(t, pub.Publish("t", message.NewMessage("1", []byte("x"))))
		require.EqualError(t, pub.Publish("t", message.NewMessage("2", nil)), `message "2" for topic "t": key: no payload, no key`)
		require.Equal(t, "tx", string(consume(t, client, "t", 1)[0].Key))
	})

	t.Run("NothingIsWrittenWhenAMessageCannotBeARecord", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t"))
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		reserved := message.NewMessage("1", nil)
		reserved.Metadata.Set(record.UUIDHeader, "forged")
		batch := record.NewMessage(t.Context(), []*record.Record{{Topic: "s"}, {Topic: "s", Offset: 1}})
		for _, bad := range []*message.Message{reserved, batch} {
			require.Error(t, pub.Publish("t", message.NewMessage("good", nil), bad))
		}
		require.ErrorContains(t, pub.PublishRecords(t.Context(), kafka.ProducerRecord{}), "no topic")
		require.Zero(t, fake.PartitionInfo("t", 0).HighWatermark)
	})

	t.Run("AWantedPartitionIsTakenWhereThereIsOne", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.SeedTopics(3, "t"))
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		for p := range int32(5) {
			require.NoError(t, pub.PublishRecords(t.Context(), kafka.ProducerRecord{
				Topic: "t", Partition: &p, Key: []byte("k"), Value: []byte(strconv.Itoa(int(p))),
			}))
		}
		byKey := int32(-1)
		for _, r := range consume(t, client, "t", 5) {
			wanted, err := strconv.Atoi(string(r.Value))
			require.NoError(t, err)
			switch {
			case wanted < 3:
				require.EqualValues(t, wanted, r.Partition)
			case byKey < 0:
				byKey = r.Partition
			default:
				require.Equal(t, byKey, r.Partition)
			}
		}
	})

	t.Run("EveryPartitionerKeepsWishes", func(t *testing.T) {
		t.Parallel()
		for name, base := range map[string]kgo.Partitioner{
			"sticky": kgo.StickyKeyPartitioner(nil), "backup": kgo.LeastBackupPartitioner(), "round": kgo.RoundRobinPartitioner(),
		} {
			_, client := cluster(t, kfake.SeedTopics(2, "t"))
			pub := publisher(t, kafka.PublisherConfig{Client: client, Partitioner: base})
			one := int32(1)
			recs := []kafka.ProducerRecord{{Topic: "t", Partition: &one}, {Topic: "t", Partition: &one}, {Topic: "t"}}
			require.NoError(t, pub.PublishRecords(t.Context(), recs...), name)
			onOne := 0
			for _, r := range consume(t, client, "t", 3) {
				onOne += int(r.Partition)
			}
			require.GreaterOrEqual(t, onOne, 2, name)
		}
	})
}

func TestPublisherFailures(t *testing.T) {
	t.Parallel()
	t.Run("OneTooLargeHarmsNoOther", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		require.NoError(t, fake.CreateTopic("t", 1, map[string]string{"max.message.bytes": "20000"}))
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		recs := make([]kafka.ProducerRecord, 500)
		for i := range recs {
			recs[i] = kafka.ProducerRecord{Topic: "t", Key: []byte("k"), Value: noise(t, 400)}
		}
		recs[250].Value = noise(t, 30_000)

		var failed *kafka.PublishError
		require.ErrorAs(t, pub.PublishRecords(t.Context(), recs...), &failed)
		require.Len(t, failed.Failed, 1)
		require.Equal(t, 250, failed.Failed[0].Index)
		require.False(t, failed.Failed[0].Ambiguous)
		require.ErrorIs(t, failed, kerr.MessageTooLarge)
		require.Equal(t, fault.ClassPermanent, classify(failed))
		seen := map[string]int{}
		for _, r := range consume(t, client, "t", 499) {
			seen[string(r.Value)]++
		}
		require.Len(t, seen, 499)
	})

	t.Run("OneLargerThanABatchKeepsItsPlace", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t)
		require.NoError(t, fake.CreateTopic("t", 1, map[string]string{"max.message.bytes": "5000000"}))
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		large := noise(t, 2_000_000)
		require.NoError(t, pub.PublishRecords(t.Context(),
			kafka.ProducerRecord{Topic: "t", Value: []byte("first")},
			kafka.ProducerRecord{Topic: "t", Value: large},
			kafka.ProducerRecord{Topic: "t", Value: []byte("last")},
		))
		got := consume(t, client, "t", 3)
		require.Equal(t, "first", string(got[0].Value))
		require.True(t, bytes.Equal(large, got[1].Value))
		require.Equal(t, "last", string(got[2].Value))
	})

	t.Run("AMessagesContextEndsItsWaitAndNoOther", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t"))
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		require.NoError(t, pub.Publish("t", message.NewMessage("warm", nil)))
		produce := holdRequests(t, fake, kmsg.Produce)
		ctx, cancel := context.WithCancelCause(t.Context())
		impatient, patient := message.NewMessage("impatient", nil), message.NewMessage("patient", nil)
		impatient.SetContext(ctx)

		var calls sync.WaitGroup
		var impatientErr, patientErr error
		gone := make(chan struct{})
		calls.Go(func() {
			impatientErr = pub.Publish("t", impatient)
			close(gone)
		})
		calls.Go(func() { patientErr = pub.Publish("t", patient) })
		await(t, "produce request", produce.held)
		cancel(record.ErrRevoked)
		await(t, "end of the impatient call", gone)
		produce.open()
		calls.Wait()

		require.ErrorIs(t, impatientErr, record.ErrRevoked)
		require.Equal(t, fault.ClassAmbiguous, classify(impatientErr))
		require.NoError(t, patientErr)
	})

	t.Run("AnEndedContextSendsNothing", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		for _, size := range []int{10, 2_000_000} {
			var failed *kafka.PublishError
			require.ErrorAs(t, pub.PublishRecords(ctx, kafka.ProducerRecord{Topic: "t", Value: make([]byte, size)}), &failed)
			require.ErrorIs(t, failed, context.Canceled)
			require.False(t, failed.Failed[0].Ambiguous)
		}
		require.Zero(t, fake.PartitionInfo("t", 0).HighWatermark)
	})

	t.Run("ASilentBrokerEndsWithTheTimeout", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t"))
		produce := holdRequests(t, fake, kmsg.Produce)
		pub := publisher(t, kafka.PublisherConfig{Client: client, Timeout: time.Second})
		err := pub.PublishRecords(t.Context(), kafka.ProducerRecord{Topic: "t"})
		produce.open()
		var failed *kafka.PublishError
		require.ErrorAs(t, err, &failed)
		require.True(t, failed.Failed[0].Ambiguous)
		require.Equal(t, fault.ClassAmbiguous, classify(err))
	})

	t.Run("ALostAnswerLeavesOneRecord", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t"))
		lost := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 3})
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		require.NoError(t, pub.PublishRecords(t.Context(), kafka.ProducerRecord{Topic: "t", Value: []byte("once")}))
		require.Equal(t, 3, lost.Hits())
		require.EqualValues(t, 1, fake.PartitionInfo("t", 0).HighWatermark)
	})

	t.Run("AnUnknownTopicIsNamed", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t)
		err := publisher(t, kafka.PublisherConfig{Client: client}).Publish("nowhere", message.NewMessage("1", nil))
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)
		require.ErrorContains(t, err, `"nowhere"`)
		require.Equal(t, fault.ClassTransient, classify(err))
	})

	t.Run("TopicsAreCreatedOnlyOnRequest", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.AllowAutoTopicCreation())
		require.Error(t, publisher(t, kafka.PublisherConfig{Client: client}).Publish("new", message.NewMessage("1", nil)))
		creating := publisher(t, kafka.PublisherConfig{Client: client, CreateTopics: true})
		require.NoError(t, creating.Publish("new", message.NewMessage("2", nil)))
	})

	t.Run("ConcurrentCallsAreEachConfirmed", func(t *testing.T) {
		t.Parallel()
		_, client := cluster(t, kfake.SeedTopics(4, "t"))
		pub := publisher(t, kafka.PublisherConfig{Client: client})
		var calls sync.WaitGroup
		errs := make([]error, 200)
		for i := range errs {
			calls.Go(func() { errs[i] = pub.Publish("t", message.NewMessage(strconv.Itoa(i), nil)) })
		}
		calls.Wait()
		require.NoError(t, errors.Join(errs...))
		consume(t, client, "t", len(errs))
	})

	t.Run("CloseWaitsForCallsAndRefusesLaterOnes", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t"))
		pub, err := kafka.NewPublisher(kafka.PublisherConfig{Client: client})
		require.NoError(t, err)
		produce := holdRequests(t, fake, kmsg.Produce)
		published := make(chan error, 1)
		go func() { published <- pub.Publish("t", message.NewMessage("1", nil)) }()
		await(t, "produce request", produce.held)
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- pub.Close() }()
		}
		produce.open()
		require.NoError(t, <-published)
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		require.ErrorContains(t, pub.Publish("t", message.NewMessage("2", nil)), "closed")
	})

	t.Run("ErrorsCountWhatFailed", func(t *testing.T) {
		t.Parallel()
		fake, client := cluster(t, kfake.SeedTopics(1, "t", "u"))
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "u", Err: kerr.InvalidRecord, Count: -1})
		err := publisher(t, kafka.PublisherConfig{Client: client}).PublishRecords(t.Context(),
			kafka.ProducerRecord{Topic: "t"}, kafka.ProducerRecord{Topic: "u"}, kafka.ProducerRecord{Topic: "u"})
		require.ErrorContains(t, err, `2 of 3 records not confirmed; first is number 1, to "u": INVALID_RECORD`)
	})

	t.Run("ImpossibleConfigurationsAreRefused", func(t *testing.T) {
		t.Parallel()
		_, err := kafka.NewPublisher(kafka.PublisherConfig{})
		require.ErrorContains(t, err, "no brokers")
		_, err = kafka.NewPublisher(kafka.PublisherConfig{Client: kafka.ClientConfig{Brokers: []string{"a:1"}}, Timeout: -1})
		require.ErrorContains(t, err, "negative")
	})
}

// TestProducerRecordSize compares the formula with what the client puts on the wire.
func TestProducerRecordSize(t *testing.T) {
	t.Parallel()
	for i, rec := range []kafka.ProducerRecord{
		{},
		{Key: []byte{}, Value: []byte("v")},
		{Key: make([]byte, 63), Value: make([]byte, 64)},
		{Key: make([]byte, 8191), Value: make([]byte, 8192), Headers: []record.Header{{Key: "k"}, {Key: "", Value: make([]byte, 200)}}},
		{Value: make([]byte, 900_000), Headers: make([]record.Header, 70)},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			fake, client := cluster(t, kfake.SeedTopics(1, "t"))
			var size atomic.Int64 // asked more than once a request
			fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, When: func(r kmsg.Request) bool {
				size.Store(int64(len(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)))
				return true
			}})
			rec.Topic = "t"
			pub := publisher(t, kafka.PublisherConfig{Client: client, Compression: []kgo.CompressionCodec{kgo.NoCompression()}})
			require.NoError(t, pub.PublishRecords(t.Context(), rec))
			require.EqualValues(t, size.Load(), rec.Size())
		})
	}
}

func classify(err error) fault.Class {
	return (&fault.Classifier{}).Classify(context.Background(), err).Class
}

// noise does not compress.
func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return b
}
