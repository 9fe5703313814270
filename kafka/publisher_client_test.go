package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
)

// TestPublisher_AllowedToWriteOnlyLaterWritesThen is the regression of a client that was refused its producer id once, and
// then failed everything until the process was restarted.
func TestPublisher_AllowedToWriteOnlyLaterWritesThen(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]*kerr.Error{"Refused": kerr.ClusterAuthorizationFailed, "UnknownServerError": kerr.UnknownServerError} {
		for _, alone := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				fake, client := cluster(t, kfake.SeedTopics(1, "t"))
				denied := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: err, Count: -1})
				p := publisher(t, kafka.PublisherConfig{Client: client, Timeout: 5 * time.Second})
				write := func() error {
					return p.PublishRecords(t.Context(), kafka.ProducerRecord{Topic: "t", Alone: alone}, kafka.ProducerRecord{Topic: "t", Alone: alone})
				}
				for range 3 {
					require.ErrorIs(t, write(), err)
				}
				denied.Remove()
				require.Eventually(t, func() bool { return !errors.Is(write(), err) }, time.Minute, 10*time.Millisecond)
				require.NoError(t, write())
			})
		}
	}
}
