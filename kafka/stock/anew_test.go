package stock_test

import (
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

// makeAnew deletes the topic and creates it again, with n records.
func (w *world) makeAnew(n int) {
	w.t.Helper()
	admin := kafkatest.Admin(w.t, w.brokers)
	_, err := admin.DeleteTopics(w.t.Context(), w.topic)
	require.NoError(w.t, err)
	w.eventually("it is created again", func() bool {
		_, err := admin.CreateTopic(w.t.Context(), 1, -1, nil, w.topic)
		return err == nil
	})
	w.produce(0, n)
}

// heldAnew waits until the topic is held, and stops the member.
func (w *world) heldAnew(s *stock.Subscriber, messages <-chan *message.Message) {
	w.t.Helper()
	w.eventually("it is told", func() bool { return slices.Contains(w.kinds(), record.ReportTopicRecreated) })
	require.ErrorContains(w.t, s.Ready(), "topic_recreated")
	require.NoError(w.t, s.Close())
	for range messages {
		require.FailNow(w.t, "a record of the new topic under the old one's id")
	}
}

// restarted checks that the next process begins the new topic at its start.
func (w *world) restarted() {
	w.t.Helper()
	r := one(w.t, w.take(w.messages(w.subscriber())))
	require.Zero(w.t, r.Offset, "what is before it is never delivered")
}

func TestTopicMadeAnewUnderASessionIsNotReadOnAtTheOldPosition(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"TheNewLogIsLonger": 40, "TheNewLogIsAsLong": 5, "TheNewLogIsShorter": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers(t, func(t *testing.T, brokers []string) {
				w := newWorld(t, brokers, 1)
				w.produce(0, 5)
				s := w.subscriber()
				messages := w.messages(s)
				for range 5 {
					w.take(messages).Ack()
				}
				w.eventually("all is committed", func() bool { return w.committed()[0] == 5 })
				w.makeAnew(n)
				w.heldAnew(s, messages)
				w.restarted()
			})
		})
	}
}

func TestRecordThatRunsWhileItsTopicIsMadeAnewMovesNoOffsetOfTheNewOne(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"AndTheMemberReadsOn": false, "AndTheMemberStopsAtOnce": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers(t, func(t *testing.T, brokers []string) {
				w := newWorld(t, brokers, 1)
				w.produce(0, 5)
				s := w.subscriber()
				messages := w.messages(s)
				for range 4 {
					w.take(messages).Ack()
				}
				last := w.take(messages)
				w.makeAnew(40)
				last.Ack()
				if stop {
					require.NoError(t, s.Close())
				} else {
					w.heldAnew(s, messages)
				}
				w.restarted()
			})
		})
	}
}
