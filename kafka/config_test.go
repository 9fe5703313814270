package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
)

func TestSourceConfig(t *testing.T) {
	t.Parallel()
	client := kafka.ClientConfig{Brokers: []string{"localhost:1"}, Logger: quiet()}
	t.Run("NeedsBrokersAndAGroup", func(t *testing.T) {
		t.Parallel()
		_, err := kafka.NewSource(kafka.SourceConfig{Group: "g"})
		require.ErrorIs(t, err, kafka.ErrNoBrokers)
		_, err = kafka.NewSource(kafka.SourceConfig{Client: client})
		require.ErrorContains(t, err, "Group is empty")
	})
	t.Run("GracesThatExceedTheRebalanceTimeoutAreShownAsASum", func(t *testing.T) {
		t.Parallel()
		_, err := kafka.NewSource(kafka.SourceConfig{Client: client, Group: "g", DrainGrace: time.Minute})
		require.ErrorContains(t, err,
			"DrainGrace 1m0s + HardGrace 5s + CommitReserve 5s + HeartbeatInterval 1s + reserve 1s = 1m12s exceeds RebalanceTimeout 1m0s by 12s")
	})
	t.Run("SessionMustHoldThreeHeartbeats", func(t *testing.T) {
		t.Parallel()
		_, err := kafka.NewSource(kafka.SourceConfig{Client: client, Group: "g", SessionTimeout: 2 * time.Second})
		require.ErrorContains(t, err, "HeartbeatInterval 1s")
	})
	t.Run("NeverJoinedSourceStops", func(t *testing.T) {
		t.Parallel()
		s, err := kafka.NewSource(kafka.SourceConfig{Client: client, Group: "g", Topics: []string{"a", "b"}})
		require.NoError(t, err)
		msgs, err := s.Subscribe(t.Context(), "a")
		require.NoError(t, err)
		require.Error(t, s.Ready())
		require.NoError(t, s.Live())
		require.Empty(t, s.Stats())
		require.NoError(t, s.Close())
		_, open := <-msgs
		require.False(t, open)
		_, err = s.Subscribe(t.Context(), "a")
		require.ErrorIs(t, err, kafka.ErrClosed)
		<-s.Done()
		require.NoError(t, s.Err())
	})
}
