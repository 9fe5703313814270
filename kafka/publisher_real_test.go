package kafka_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// TestPublisherOnARealBroker repeats what a fake one may be too kind about.
func TestPublisherOnARealBroker(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Real(t).Brokers()
	client := kafka.ClientConfig{Brokers: brokers, Logger: quiet()}
	pub := publisher(t, kafka.PublisherConfig{Client: client})

	t.Run("KeysValuesAndHeadersArriveByteForByte", func(t *testing.T) {
		t.Parallel()
		topic := kafkatest.Topic(t, brokers, 1)
		sent := []kafka.ProducerRecord{
			{Topic: topic},
			{Topic: topic, Key: []byte{}, Value: []byte{}, Headers: []record.Header{{}}},
			{Topic: topic, Key: []byte{0xff}, Headers: []record.Header{{Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte{0}}}},
		}
		require.NoError(t, pub.PublishRecords(t.Context(), sent...))
		for i, got := range consume(t, client, topic, len(sent)) {
			require.Equal(t, sent[i].Key, got.Key)
			require.Equal(t, sent[i].Value, got.Value)
			require.Equal(t, sent[i].Headers, fromClient(got))
		}
	})

	t.Run("OneTooLargeHarmsNoOther", func(t *testing.T) {
		t.Parallel()
		topic := kafkatest.Topic(t, brokers, 1, "max.message.bytes", "20000")
		recs := make([]kafka.ProducerRecord, 100)
		for i := range recs {
			recs[i] = kafka.ProducerRecord{Topic: topic, Value: noise(t, 400)}
		}
		recs[50].Value = noise(t, 30_000)
		var failed *kafka.PublishError
		require.ErrorAs(t, pub.PublishRecords(t.Context(), recs...), &failed)
		require.Len(t, failed.Failed, 1)
		require.Equal(t, 50, failed.Failed[0].Index)
		consume(t, client, topic, 99)
	})

	t.Run("WhatFitsCompressedIsTaken", func(t *testing.T) {
		t.Parallel()
		topic := kafkatest.Topic(t, brokers, 1)
		large := bytes.Repeat([]byte("compresses well "), 1<<18)
		require.NoError(t, pub.PublishRecords(t.Context(), kafka.ProducerRecord{Topic: topic, Value: large}))
		require.True(t, bytes.Equal(large, consume(t, client, topic, 1)[0].Value))
	})

	t.Run("ATopicIsAsTheClusterSays", func(t *testing.T) {
		t.Parallel()
		topic := kafkatest.Topic(t, brokers, 3, "retention.ms", "-1", "max.message.bytes", "1234567", "cleanup.policy", "compact")
		got, err := admin(t, client).Topic(t.Context(), topic)
		require.NoError(t, err)
		require.Equal(t, kafka.Topic{
			Name: topic, ID: got.ID, Partitions: 3, Replication: 1, Retention: kafka.Forever, MaxMessageBytes: 1234567,
			CleanupPolicy: "compact", MinISR: 1,
		}, got)
		require.NotZero(t, got.ID)
		_, err = admin(t, client).Topic(t.Context(), topic+"-nowhere")
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)
	})
}
