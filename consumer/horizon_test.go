package consumer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/kafkatest"
)

func TestHorizon(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	setup := func(t *testing.T) (*bed, func() time.Time) {
		t.Helper()
		b := newBedOn(t, lazyPool(t))
		c, err := New(b.config(), effectRoute("post"))
		require.NoError(t, err)
		return b, func() time.Time {
			when, err := c.horizon("orders")(t.Context())
			require.NoError(t, err)
			return when.UTC()
		}
	}
	// write puts a record into a partition.
	write := func(b *bed, partition int32, when time.Time) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(b.t, err)
		defer cl.Close()
		r := &kgo.Record{Topic: "orders", Partition: partition, Timestamp: when, Value: []byte("{}")}
		require.NoError(b.t, cl.ProduceSync(b.t.Context(), r).FirstErr())
	}
	commit := func(b *bed, partition int32, offset int64) {
		var os kadm.Offsets
		os.AddOffset("orders", partition, offset, -1)
		require.NoError(b.t, kadm.NewClient(b.client).CommitAllOffsets(b.t.Context(), "billing", os))
	}

	t.Run("IsNoneInAnEmptyTopic", func(t *testing.T) {
		t.Parallel()
		_, horizon := setup(t)
		require.Zero(t, horizon())
	})

	t.Run("IsTheOldestOfAGroupThatHasCommittedNothing", func(t *testing.T) {
		t.Parallel()
		b, horizon := setup(t)
		write(b, 0, at(20))
		write(b, 1, at(10))
		require.Equal(t, at(10), horizon())
	})

	t.Run("IsTheOldestThatIsNotCommitted", func(t *testing.T) {
		t.Parallel()
		b, horizon := setup(t)
		write(b, 0, at(1))
		write(b, 0, at(30))
		write(b, 1, at(2))
		write(b, 1, at(40))
		commit(b, 0, 1)
		commit(b, 1, 1)
		require.Equal(t, at(30), horizon())
	})

	t.Run("IsNoneWhereAllIsCommitted", func(t *testing.T) {
		t.Parallel()
		b, horizon := setup(t)
		write(b, 2, at(1))
		commit(b, 2, 1)
		require.Zero(t, horizon())
	})

	t.Run("IsNoneWhereOnlyTheMarkerOfATransactionIsLeft", func(t *testing.T) {
		t.Parallel()
		b, horizon := setup(t)
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, err)
		defer cl.Close()
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Partition: 3, Value: []byte("{}")}).FirstErr())
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
		commit(b, 3, 1) // the record; the marker at offset 1 is nothing that anybody commits
		require.EqualValues(t, 2, b.length("orders"))
		require.Zero(t, horizon())
	})
}

// The first group of a new cluster: the brokers have to make a topic before it has a coordinator.
func TestUncommitted_WaitsForTheCoordinatorOfANewCluster(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	var refused atomic.Int32
	cluster.ControlKey(int16(kmsg.FindCoordinator), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if refused.Add(1) > 2 {
			return nil, nil, false
		}
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		for _, key := range req.(*kmsg.FindCoordinatorRequest).CoordinatorKeys {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.ErrorCode = key, kerr.CoordinatorNotAvailable.Code
			resp.Coordinators = append(resp.Coordinators, c)
		}
		return resp, nil, true
	})
	kafkatest.Produce(t, cluster.ListenAddrs(), &kgo.Record{Topic: "orders", Value: []byte("{}")})
	open, err := uncommitted(t.Context(), kafkatest.Admin(t, cluster.ListenAddrs()), "billing", "orders")
	require.NoError(t, err)
	require.Equal(t, map[int32]span{0: {0, 1}}, open)
	require.EqualValues(t, 3, refused.Load())
}
