package kafkatest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/backoff"
)

const (
	// callTimeout bounds what a helper waits for the broker.
	callTimeout = time.Minute
	// pollEvery is between two looks of a helper that waits.
	pollEvery = 50 * time.Millisecond
)

// Fake starts franz-go's in-process broker, one node unless the options say otherwise. The test's end closes it. It is for
// the faults that no real broker makes on demand (kfake's ControlKey) and for tests that must run without Java.
func Fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

// Name returns a name for a topic or a consumer group that nobody else uses: the test's own, made legal, and a random
// end.
func Name(t testing.TB) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '-'
	}, t.Name())
	return name[:min(len(name), 150)] + "-" + uuid.NewString()[:8]
}

// Client returns a client that the test's end closes.
func Client(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// Admin returns an admin client that the test's end closes.
func Admin(t testing.TB, brokers []string) *kadm.Client {
	t.Helper()
	return kadm.NewClient(Client(t, brokers))
}

// Topic creates a topic with a name of its own and returns the name. configs are pairs of name and value.
func Topic(t testing.TB, brokers []string, partitions int, configs ...string) string {
	t.Helper()
	name := Name(t)
	CreateTopic(t, brokers, name, partitions, configs...)
	return name
}

// CreateTopic creates a topic of this name, with the cluster's default replication. When it returns each broker knows it.
func CreateTopic(t testing.TB, brokers []string, name string, partitions int, configs ...string) {
	t.Helper()
	require.Zero(t, len(configs)%2, "configs are pairs of name and value")
	settings := map[string]*string{}
	for pair := range slices.Chunk(configs, 2) {
		settings[pair[0]] = &pair[1]
	}
	ctx, cancel := deadline(t)
	defer cancel()
	client := Client(t, brokers)
	admin := kadm.NewClient(client)
	_, err := admin.CreateTopic(ctx, int32(partitions), -1, settings, name)
	require.NoError(t, err)
	live, err := admin.ListBrokers(ctx)
	require.NoError(t, err)
	for _, id := range live.NodeIDs() {
		for !knows(ctx, client.Broker(int(id)), name) {
			require.True(t, backoff.Wait(ctx, 10*time.Millisecond), "broker %d does not know topic %s", id, name)
		}
	}
}

// knows says whether a broker has heard of a topic and its leaders: who created it is answered before. One that cannot be asked
// is not waited for.
func knows(ctx context.Context, broker *kgo.Broker, topic string) bool {
	req := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, broker)
	if err != nil {
		return ctx.Err() == nil
	}
	for _, t := range resp.Topics {
		unled := slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.ErrorCode != 0 })
		if t.ErrorCode != 0 || unled {
			return false
		}
	}
	return true
}

// Produce writes the records, acknowledged by all in-sync replicas. A record goes to its Partition when the key is nil,
// else where Kafka's own clients put its key. The records get the offsets they were written at.
func Produce(t testing.TB, brokers []string, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := deadline(t)
	defer cancel()
	byKey := kgo.StickyKeyPartitioner(nil)
	client := Client(t, brokers, kgo.RecordPartitioner(kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		keyed := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Key == nil {
				return int(r.Partition)
			}
			return keyed.Partition(r, n)
		}
	})))
	require.NoError(t, client.ProduceSync(ctx, records...).FirstErr())
}

// ReadAll returns every record that the topic holds now, of aborted transactions too, by partition and offset.
func ReadAll(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := deadline(t)
	defer cancel()
	starts, ends := bounds(ctx, t, brokers, topic)
	if len(ends) == 0 {
		return nil
	}
	// Control records are read and thrown away: without them a topic that ends with a transaction's marker never comes
	// to its end.
	client := Client(t, brokers, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}), kgo.KeepControlRecords())
	var records []*kgo.Record
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		fetches.EachError(func(_ string, partition int32, err error) {
			require.NoError(t, err, "reading %s/%d", topic, partition)
		})
		fetches.EachRecord(func(r *kgo.Record) {
			end, unread := ends[r.Partition]
			if unread && r.Offset >= end-1 {
				delete(ends, r.Partition)
			}
			if unread && r.Offset < end && !r.Attrs.IsControl() {
				records = append(records, r)
			}
		})
	}
	slices.SortFunc(records, byPosition)
	return records
}

// bounds returns where the topic's partitions start and end, without the empty ones.
func bounds(ctx context.Context, t testing.TB, brokers []string, topic string) (starts map[int32]kgo.Offset, ends map[int32]int64) {
	t.Helper()
	admin := Admin(t, brokers)
	first, err := admin.ListStartOffsets(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, first.Error())
	last, err := admin.ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, last.Error())
	starts, ends = map[int32]kgo.Offset{}, map[int32]int64{}
	last.Each(func(end kadm.ListedOffset) {
		start, _ := first.Lookup(topic, end.Partition)
		if start.Offset < end.Offset {
			starts[end.Partition] = kgo.NewOffset().At(start.Offset)
			ends[end.Partition] = end.Offset
		}
	})
	return starts, ends
}

func byPosition(a, b *kgo.Record) int {
	if a.Partition != b.Partition {
		return int(a.Partition - b.Partition)
	}
	return int(a.Offset - b.Offset)
}

// Committed returns the group's committed offset of each partition of the topic that has one.
func Committed(t testing.TB, brokers []string, group, topic string) map[int32]int64 {
	t.Helper()
	ctx, cancel := deadline(t)
	defer cancel()
	offsets := fetchOffsets(ctx, t, Admin(t, brokers), group)
	committed := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic {
			committed[o.Partition] = o.At
		}
	})
	return committed
}

// fetchOffsets waits for a coordinator: a broker has none before its first group makes it create __consumer_offsets. A
// group that nobody has committed for has no offsets.
func fetchOffsets(ctx context.Context, t testing.TB, admin *kadm.Client, group string) kadm.OffsetResponses {
	t.Helper()
	for {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err == nil {
			err = offsets.Error()
		}
		if errors.Is(err, kerr.GroupIDNotFound) {
			return nil
		}
		if err == nil || !kerr.IsRetriable(err) || !backoff.Wait(ctx, pollEvery) {
			require.NoError(t, err)
			return offsets
		}
	}
}

// deadline is the test's context with the helpers' time limit. It outlives the test's body, so that helpers work in
// cleanups too.
func deadline(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), callTimeout)
}
