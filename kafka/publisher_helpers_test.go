package kafka_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
)

// patience is how long a test waits for what must come: generous, because only a broken one ever uses it up.
const patience = 30 * time.Second

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// cluster is an in-process broker that ends with the test.
func cluster(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, kafka.ClientConfig) {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	return fake, kafka.ClientConfig{Brokers: fake.ListenAddrs(), Logger: quiet()}
}

func publisher(t *testing.T, cfg kafka.PublisherConfig) *kafka.Publisher {
	t.Helper()
	pub, err := kafka.NewPublisher(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return pub
}

// consume reads n records of a topic, ordered by partition and offset.
func consume(t *testing.T, client kafka.ClientConfig, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := kgo.NewClient(append(client.Options(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	require.NoError(t, err)
	defer cl.Close()
	var got []*kgo.Record
	for len(got) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err(), "got %d of %d records", len(got), n)
		got = append(got, fetches.Records()...)
	}
	slices.SortFunc(got, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	require.Len(t, got, n)
	return got
}

// gate holds the broker's answers to requests of one kind until it is opened.
type gate struct {
	open func()
	held <-chan struct{} // closed when the first request is held
}

func holdRequests(t *testing.T, fake *kfake.Cluster, key kmsg.Key) gate {
	t.Helper()
	release, held := make(chan struct{}), make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	first := sync.OnceFunc(func() { close(held) })
	t.Cleanup(open)
	fake.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		first()
		fake.SleepControl(func() { <-release })
		return nil, nil, false
	})
	return gate{open: open, held: held}
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		require.FailNow(t, "never came", what)
	}
}
