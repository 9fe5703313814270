package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/kafka"
)

func TestSource_Stats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		run  func(*world)
	}{
		{"PartitionWithoutRecordsHasALag", partitionWithoutRecords},
		{"DrainedPartitionHasALagBeforeItsFirstRecord", drainedPartition},
		{"PausedPartitionsLagGrows", pausedPartition},
		{"ReplayTopicsTakeNoMemoryFromTheRest", replayTopicsTakeNoMemory},
		{"ARestartMakesWhatIsBehindNoYounger", behindSinceItWasWritten},
	} {
		t.Run(c.name, func(t *testing.T) { virtual(t, 1, c.run) })
	}
}

// stats are those of the only claim.
func (w *world) stats(s *kafka.Source) kafka.PartitionStats {
	w.t.Helper()
	all := s.Stats()
	require.Len(w.t, all, 1)
	return all[0]
}

func partitionWithoutRecords(w *world) {
	s := w.source()
	w.subscribe(s)
	wait(5 * time.Second)
	st := w.stats(s)
	require.Zero(w.t, st.Lag, "%+v", st)
	require.EqualValues(w.t, -1, st.Committed)
	require.NoError(w.t, s.Close())
}

func drainedPartition(w *world) {
	w.produceMany(0, 3)
	first := w.source()
	msgs := w.subscribe(first)
	for range 3 {
		w.take(msgs).Ack()
	}
	wait(2 * time.Second)
	require.NoError(w.t, first.Close())
	second := w.source()
	w.subscribe(second)
	wait(5 * time.Second)
	st := w.stats(second)
	require.Zero(w.t, st.Lag, "%+v", st)
	require.EqualValues(w.t, 3, st.HighWatermark)
	require.NoError(w.t, second.Close())
}

func pausedPartition(w *world) {
	w.produceMany(0, 5)
	s := w.source(func(c *kafka.SourceConfig) { c.MaxInFlight = 5 })
	msgs := w.subscribe(s)
	w.take(msgs) // and nothing becomes of it
	wait(5 * time.Second)
	require.True(w.t, w.stats(s).Paused)
	w.produceMany(0, 20)
	wait(time.Minute)
	require.EqualValues(w.t, 25, w.stats(s).Lag)
	require.NoError(w.t, s.Close())
}

func replayTopicsTakeNoMemory(w *world) {
	_, err := kadm.NewClient(w.producer).CreateTopic(w.t.Context(), 4, 1, nil, "t.g.replay")
	require.NoError(w.t, err)
	s := w.source(func(c *kafka.SourceConfig) { c.MaxInFlightBytes = 100_000 })
	w.subscribe(s)
	_, err = s.Subscriber(kafka.Subscription{Replay: true}).Subscribe(w.t.Context(), "t.g.replay")
	require.NoError(w.t, err)
	wait(5 * time.Second)
	w.produceMany(0, 80) // 400 bytes each and a little: more than a fifth, less than half
	wait(5 * time.Second)
	for _, st := range s.Stats() {
		require.False(w.t, st.Paused, "%+v", st)
	}
	w.produceMany(0, 160) // more than seven eighths, with those
	wait(5 * time.Second)
	paused := 0
	for _, st := range s.Stats() {
		if st.Paused {
			paused++
		}
	}
	require.Equal(w.t, 1, paused)
	require.NoError(w.t, s.Close())
}

func behindSinceItWasWritten(w *world) {
	w.produceMany(0, 1)
	wait(time.Hour)
	s := w.source()
	w.take(w.subscribe(s))
	wait(time.Minute)
	st := w.stats(s)
	require.Greater(w.t, st.Behind, time.Hour, "%+v", st)
	require.Less(w.t, st.OldestAge, 2*time.Minute)
	require.NoError(w.t, s.Close())
}
