package outbox_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

func TestForwarderPacks(t *testing.T) {
	t.Parallel()

	// Else nobody could delete what is in the way without the rest of its row.
	t.Run("AnEventThatIsInTheWayIsARowOfItsOwn", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		kafkatest.CreateTopic(t, b.brokers, "small", 1, "max.message.bytes", "2000")
		big := keyed("big", 0, 1)[0]
		big.Metadata.Set("noise", noise(3000))
		b.publish("small", append(append(keyed("k", 0, 20), big), keyed("k", 20, 20)...)...)
		require.Equal(t, 1, b.rows())
		b.forward(b.config())
		b.eventually("all before it are sent, and the others have rows of their own", func() bool {
			return b.waiting() == 21 && b.rows() == 21 && len(b.reported(record.ReportOutboxBlocked)) == 1
		})
		_, err := b.pool.Exec(t.Context(), "delete from headrace.outbox where message_id = 'big-0'")
		require.NoError(t, err)
		b.drained()
		require.Zero(t, requireInOrder(t, b.read("small"), 1, 40))
	})

	// What was reported was the first cause alone, and of a wave of several packs any event's.
	t.Run("AnEventThatIsInTheWayAfterAnOutageIsARowOfItsOwnAndReported", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		kafkatest.CreateTopic(t, b.brokers, "small", 1, "max.message.bytes", "2000")
		b.publish("small", keyed("k", 0, 1)...)
		b.forward(b.config())
		b.drained() // so more than one event is sent at once
		b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "small", Err: kerr.InvalidRecord, Count: 2})
		big := keyed("big", 0, 1)[0]
		big.Metadata.Set("noise", noise(3000))
		b.publish("small", append([]*message.Message{big}, keyed("k", 1, 20)...)...)
		b.eventually("both causes are reported", func() bool { return len(b.reported(record.ReportOutboxBlocked)) == 2 })
		reports := b.reported(record.ReportOutboxBlocked)
		require.ErrorIs(t, reports[0].Err, kerr.InvalidRecord)
		require.ErrorIs(t, reports[1].Err, kerr.MessageTooLarge)
		var id int64
		require.NoError(t, b.pool.QueryRow(t.Context(), "delete from headrace.outbox where message_id = 'big-0' returning id").Scan(&id))
		require.ErrorContains(t, reports[1].Err, fmt.Sprintf("event %d: ", id))
		b.drained()
		require.Zero(t, requireInOrder(t, b.read("small"), 1, 21))
	})

	// Confirmed in part, because one partition took its batch and another one did not.
	t.Run("WhatIsConfirmedIsNotSentAgainWithTheRestOfItsRow", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(2, "t"))
		b.publish("t", keyed("a", 0, 10)...)
		stop := b.forward(b.config())
		b.drained()
		refused := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.InvalidRecord, Count: 1})
		var mixed []*message.Message
		for i := range 30 {
			mixed = append(mixed, keyed("a", 10+i, 1)[0], keyed("b", i, 1)[0], keyed("c", i, 1)[0])
		}
		b.publish("t", mixed...)
		b.drained()
		stop()
		require.Equal(t, 1, refused.Hits())
		got := b.read("t")
		require.Zero(t, requireInOrder(t, keyOnly(got, "a"), 1, 40))
		require.Zero(t, requireInOrder(t, keyOnly(got, "b"), 1, 30))
		require.Zero(t, requireInOrder(t, keyOnly(got, "c"), 1, 30))
	})
}

// rows is how many rows the table has.
func (b *bed) rows() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "select count(*) from headrace.outbox").Scan(&n))
	return n
}
