package stock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

// remembering answers Begin with a partition's Start, which may change.
func remembering(partition int32, start *atomic.Pointer[kafka.Start]) func(*stock.Config) {
	return func(c *stock.Config) {
		c.Source.Begin = func(_ context.Context, at []kafka.Start) ([]kafka.Start, error) {
			k := start.Load()
			i := slices.IndexFunc(at, func(a kafka.Start) bool { return a.Partition == partition })
			if k == nil || i < 0 {
				return nil, nil
			}
			at[i].Offset, at[i].End, at[i].Epoch = k.Offset, k.End, k.Epoch
			return at[i : i+1], nil
		}
	}
}

func pointing(k kafka.Start) *atomic.Pointer[kafka.Start] {
	p := new(atomic.Pointer[kafka.Start])
	p.Store(&k)
	return p
}

// settleAll runs a Subscriber that settles everything.
func (w *world) settleAll(change ...func(*stock.Config)) (*stock.Subscriber, *seen) {
	w.t.Helper()
	s, got := w.subscriber(change...), &seen{}
	handle(w.messages(s), func(msg *message.Message) error {
		got.add(one(w.t, msg))
		return nil
	})
	return s, got
}

func from(first, n int64) []int64 {
	os := make([]int64, n)
	for i := range os {
		os[i] = first + int64(i)
	}
	return os
}

func TestBegin(t *testing.T) {
	t.Parallel()

	t.Run("LaterOffsetIsWhereThePartitionBegins", func(t *testing.T) {
		t.Parallel()
		brokers(t, func(t *testing.T, brokers []string) {
			w := newWorld(t, brokers, 2)
			w.produce(0, 10)
			w.produce(1, 3)
			_, got := w.settleAll(remembering(0, pointing(kafka.Start{Offset: 7, End: 9, Epoch: 0})))
			w.eventually("all are settled", func() bool { return w.committed()[0] == 10 && w.committed()[1] == 3 })
			require.Equal(t, from(7, 3), got.of(0))
			require.Equal(t, upTo(3), got.of(1), "nothing is remembered of it")
		})
	})

	t.Run("LaterOffsetIsCommittedThoughNoRecordComes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.produce(0, 10)
		s, got := w.settleAll(remembering(0, pointing(kafka.Start{Offset: 10, End: 10, Epoch: -1})))
		w.eventually("it is committed", func() bool { return w.committed()[0] == 10 })
		require.Zero(t, got.total())
		require.NoError(t, s.Ready())
	})

	t.Run("EarlierOffsetNeverMovesThePartitionBack", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.produce(0, 5)
		s, _ := w.settleAll()
		w.eventually("it is committed", func() bool { return w.committed()[0] == 5 })
		require.NoError(t, s.Close())
		w.produce(0, 5)
		_, got := w.settleAll(remembering(0, pointing(kafka.Start{Offset: 2, End: 5, Epoch: -1})))
		w.eventually("it is committed", func() bool { return w.committed()[0] == 10 })
		require.Equal(t, from(5, 5), got.of(0))
	})

	t.Run("WhatCannotBeAskedBeginsAtTheCommittedOffset", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.produce(0, 5)
		_, got := w.settleAll(func(c *stock.Config) {
			c.Source.Begin = func(context.Context, []kafka.Start) ([]kafka.Start, error) { return nil, errors.New("no database") }
		})
		w.eventually("it is committed", func() bool { return w.committed()[0] == 5 })
		require.Equal(t, upTo(5), got.of(0))
		require.Empty(t, w.kinds())
	})

	t.Run("LogThatWasCutIsHeldAndNothingSkipped", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t, kfake.GroupMinSessionTimeout(time.Millisecond)).ListenAddrs(), 1)
		w.produce(0, 5)
		remembered := pointing(kafka.Start{Offset: 3, End: 8, Epoch: -1})
		s, got := w.settleAll(remembering(0, remembered))
		w.eventually("it is reported", func() bool { return slices.Contains(w.kinds(), record.ReportTruncated) })
		require.ErrorContains(t, s.Ready(), "records before offset 8 were read, and the log ends at 5")
		require.Empty(t, w.committed())
		require.Zero(t, got.total())
		remembered.Store(&kafka.Start{Offset: 3, End: 3, Epoch: -1}) // an operator has decided
		w.eventually("it goes on", func() bool { return w.committed()[0] == 5 })
		require.Equal(t, from(3, 2), got.of(0))
	})

	t.Run("OffsetBelowTheLogIsHeld", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t)
		w := newWorld(t, fake.ListenAddrs(), 1)
		w.produce(0, 10)
		require.NoError(t, fake.DeleteRecords(w.topic, 0, 6))
		_, got := w.settleAll(remembering(0, pointing(kafka.Start{Offset: 4, End: 4, Epoch: -1})))
		w.eventually("it is reported", func() bool { return slices.Contains(w.kinds(), record.ReportOffsetOutOfRange) })
		require.Zero(t, got.total())
	})
}

// The offset store marks the gap before a record with it: so each must know which one came before.
func TestRecordFollowsTheOneBeforeAcrossTheGapsOfALog(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1)
	compacted := w.topic + "-compacted"
	kafkatest.CreateTopic(t, w.brokers, compacted, 1, "cleanup.policy", "compact")
	w.topic = compacted
	for i := range 20 {
		for _, key := range []string{fmt.Sprint(i % 3), fmt.Sprint("only", i)} {
			kafkatest.Produce(t, w.brokers, &kgo.Record{Topic: w.topic, Key: []byte(key), Value: []byte("v")})
		}
	}
	fake.Compact()
	w.transaction(kgo.TryAbort, 3)
	w.transaction(kgo.TryCommit, 3)
	const end = 40 + 3 + 1 + 3 + 1

	messages := w.messages(w.subscriber())
	before, gaps := int64(-1), 0
	for before < end-2 {
		msg := w.take(messages)
		r := one(t, msg)
		if before >= 0 {
			require.Equal(t, before, r.Follows)
		} else {
			require.Equal(t, r.Offset-1, r.Follows, "the first of a claim")
		}
		if r.Offset > before+1 {
			gaps++
		}
		before = r.Offset
		msg.Ack()
	}
	require.Greater(t, gaps, 2)
}

// transaction appends n records, and commits or aborts them.
func (w *world) transaction(end kgo.TransactionEndTry, n int) {
	w.t.Helper()
	tx := kafkatest.Client(w.t, w.brokers, kgo.TransactionalID(w.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(w.t, tx.BeginTransaction())
	for range n {
		require.NoError(w.t, tx.ProduceSync(w.t.Context(), &kgo.Record{Topic: w.topic, Value: []byte("v")}).FirstErr())
	}
	require.NoError(w.t, tx.EndTransaction(w.t.Context(), end))
}
