package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
)

func TestAdmin_CommittedIsWhereAGroupGoesOn(t *testing.T) {
	t.Parallel()
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": func(t *testing.T) []string { t.Helper(); return kafkatest.Fake(t).ListenAddrs() },
		"Real": func(t *testing.T) []string { t.Helper(); return kafkatest.Real(t).Brokers() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			addrs := brokers(t)
			topic, group := kafkatest.Topic(t, addrs, 2), kafkatest.Name(t)
			a := admin(t, kafka.ClientConfig{Brokers: addrs})
			var ok bool
			var err error
			require.Eventually(t, func() bool { // a new cluster has no coordinator at first
				_, ok, err = a.Committed(t.Context(), group, topic, 1)
				return err == nil
			}, time.Minute, 100*time.Millisecond)
			require.False(t, ok, "no such group")

			adm := kadm.NewClient(kafkatest.Client(t, addrs))
			offsets := kadm.Offsets{}
			offsets.AddOffset(topic, 1, 7, -1)
			require.NoError(t, adm.CommitAllOffsets(t.Context(), group, offsets))
			at, ok, err := a.Committed(t.Context(), group, topic, 1)
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 7, at)
			_, ok, err = a.Committed(t.Context(), group, topic, 0)
			require.NoError(t, err)
			require.False(t, ok, "nothing of this partition")
		})
	}
}
