package dlq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
)

func TestRead_EndsWhereAnEarlierReadingEnded(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Fake(t).ListenAddrs()
	from := source(t, brokers, 3)
	kafkatest.CreateTopic(t, brokers, dlq.ReplayTopic(from, "billing"), 3)
	dead(t, brokers, from, 5)
	read := dlq.ReadConfig{Client: clientOf(brokers), Topic: dlq.DefaultTopic(from)}
	_, snapshot := readAll(t, read)
	dead(t, brokers, from, 9)

	read.Ends = snapshot.Ends
	got, again := readAll(t, read)
	require.Len(t, got, 5)
	require.Equal(t, snapshot, again)
	summary, err := dlq.Replay(t.Context(), dlq.ReplayConfig{Read: read})
	require.NoError(t, err)
	require.EqualValues(t, 5, summary.Sent)

	read.Ends = map[int32]int64{} // no partition was there
	got, _ = readAll(t, read)
	require.Empty(t, got)
}
