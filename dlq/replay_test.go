package dlq_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// dead writes letters of a source topic, offsets 0 to n-1.
func dead(t *testing.T, brokers []string, from string, n int) {
	t.Helper()
	w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
	for i := range n {
		r := &record.Record{Topic: from, Offset: int64(i), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}
		require.NoError(t, w.Write(t.Context(), letterOf(r)))
	}
}

func TestReplay_SendsEveryLetterOnce(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Fake(t).ListenAddrs()
	from := source(t, brokers, 3)
	kafkatest.CreateTopic(t, brokers, dlq.ReplayTopic(from, "billing"), 3)
	dead(t, brokers, from, 20)
	read := dlq.ReadConfig{Client: clientOf(brokers), Topic: dlq.DefaultTopic(from)}
	got, _ := readAll(t, read)
	require.Len(t, got, 20)

	summary, err := dlq.Replay(t.Context(), dlq.ReplayConfig{Read: read})
	require.NoError(t, err)
	require.EqualValues(t, 20, summary.Sent)
	require.Len(t, kafkatest.ReadAll(t, brokers, dlq.ReplayTopic(from, "billing")), 20)
}
