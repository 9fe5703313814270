package stock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

func onLoss(l kafka.OffsetLoss) func(*stock.Config) {
	return func(c *stock.Config) { c.Source.OnOffsetLoss = l }
}

// deleteRecords takes those before an offset of partition 0 away.
func (w *world) deleteRecords(before int64) {
	w.t.Helper()
	var to kadm.Offsets
	to.AddOffset(w.topic, 0, before, -1)
	_, err := kafkatest.Admin(w.t, w.brokers).DeleteRecords(w.t.Context(), to)
	require.NoError(w.t, err)
}

// lost is what the one report of a kind says.
func (w *world) lost(kind string) record.Lost {
	w.t.Helper()
	require.Equal(w.t, []string{kind}, w.kinds())
	return w.reports[0].Lost
}

func TestOffsetBelowTheLogGoesOnAsThePolicySays(t *testing.T) {
	t.Parallel()
	for policy, begin := range map[kafka.OffsetLoss]int64{kafka.LossOldest: 50, kafka.LossNewest: 100} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			brokers(t, func(t *testing.T, brokers []string) {
				w := newWorld(t, brokers, 1)
				w.produce(0, 100)
				w.commit(5)
				w.deleteRecords(50)
				_, got := w.settleAll(onLoss(policy))
				w.eventually("it goes on", func() bool { return w.committed()[0] == 100 })
				w.produce(0, 3)
				w.eventually("it reads", func() bool { return w.committed()[0] == 103 })
				require.Equal(t, from(begin, 103-begin), got.of(0))
				require.Equal(t, record.Lost{First: 5, Last: begin - 1, Count: begin - 5}, w.lost(record.ReportOffsetOutOfRange))
			})
		})
	}
}

func TestOffsetBehindTheEndIsReadFromTheStart(t *testing.T) {
	t.Parallel()
	brokers(t, func(t *testing.T, brokers []string) {
		w := newWorld(t, brokers, 1)
		w.produce(0, 10)
		w.commit(20)
		_, got := w.settleAll(onLoss(kafka.LossOldest))
		w.eventually("it goes on", func() bool { return w.committed()[0] == 10 })
		require.Equal(t, upTo(10), got.of(0))
		require.Equal(t, record.Lost{First: 10, Last: 19, Count: 10}, w.lost(record.ReportOffsetOutOfRange))
	})
}

func TestTopicMadeAnewIsReadAsThePolicySays(t *testing.T) {
	t.Parallel()
	for policy, more := range map[kafka.OffsetLoss][]int64{kafka.LossOldest: upTo(40), kafka.LossNewest: nil} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			brokers(t, func(t *testing.T, brokers []string) {
				w := newWorld(t, brokers, 1)
				w.produce(0, 5)
				s, got := w.settleAll(onLoss(policy))
				w.eventually("all is committed", func() bool { return w.committed()[0] == 5 })
				w.makeAnew(40)
				w.eventually("the new one is", func() bool { return w.committed()[0] == 40 })
				w.produce(0, 2)
				w.eventually("it reads on", func() bool { return w.committed()[0] == 42 })
				require.Equal(t, append(append(upTo(5), more...), 40, 41), got.of(0))
				require.Contains(t, w.kinds(), record.ReportTopicRecreated)
				require.NoError(t, s.Ready())
			})
		})
	}
}
