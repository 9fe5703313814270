package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// night is when the records of the tests died.
var night = time.Date(2026, 11, 30, 3, 14, 0, 0, time.UTC)

// bed is a broker with the topics of "orders", and a shell that knows it.
type bed struct {
	*cli
	brokers []string
	client  *kgo.Client
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedOn(t, kafkatest.Fake(t).ListenAddrs(), "orders", "orders.dlq", "orders.billing.replay")
}

func newBedOn(t *testing.T, brokers []string, topics ...string) *bed {
	t.Helper()
	for _, topic := range topics {
		kafkatest.CreateTopic(t, brokers, topic, 4)
	}
	return &bed{
		cli:     newCLI(t, envBrokers+"="+strings.Join(brokers, ",")),
		brokers: brokers,
		client:  kafkatest.Client(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner())),
	}
}

// exhausted is the envelope of a letter like many: the n-th record of partition 1 could not be charged.
func exhausted(n int) dlq.Envelope {
	at := night.Add(time.Duration(n) * time.Second)
	place := dlq.Coordinates{Topic: "orders", Partition: 1, Offset: int64(n)}
	return dlq.Envelope{
		Origin: place, Latest: place, TopicID: uuid.MustParse("5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11"), Timestamp: at.Add(-time.Minute),
		MessageID: uuid.NewSHA1(uuid.Nil, []byte(strconv.Itoa(n))), Group: "billing", Route: "charge-order",
		Reason: dlq.Exhausted, Class: "transient", ErrorType: "*downstream.StatusError", Message: "payments: 503 Service Unavailable",
		Fingerprint: "9a0c4f11", Attempts: 3, FirstFailed: at.Add(-3 * time.Second), LastFailed: at,
	}
}

// bury produces a letter of a record, and gives its place.
func (b *bed) bury(env dlq.Envelope, key, value []byte, headers ...record.Header) string {
	b.t.Helper()
	return b.produce("orders.dlq", env.Origin.Partition, env.LastFailed, key, value, env.Append(headers)...)
}

// produce writes a record and gives its partition/offset.
func (b *bed) produce(topic string, partition int32, at time.Time, key, value []byte, headers ...record.Header) string {
	b.t.Helper()
	r := &kgo.Record{Topic: topic, Partition: partition, Timestamp: at, Key: key, Value: value}
	for _, h := range headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	require.NoError(b.t, b.client.ProduceSync(b.t.Context(), r).FirstErr())
	return strconv.Itoa(int(partition)) + "/" + strconv.FormatInt(r.Offset, 10)
}

// buryMany produces n letters.
func (b *bed) buryMany(n int) {
	b.t.Helper()
	for i := range n {
		b.bury(exhausted(i), []byte("c-"+strconv.Itoa(i)), []byte(`{"id":"order-`+strconv.Itoa(i)+`"}`))
	}
}

// replayed are the records of the replay topic.
func (b *bed) replayed() []*kgo.Record {
	b.t.Helper()
	return kafkatest.ReadAll(b.t, b.brokers, "orders.billing.replay")
}

// lines are a text's lines that are not empty.
func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}
