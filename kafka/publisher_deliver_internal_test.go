package kafka

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestAFullClientDelaysAndLosesNothing sends records through a client that holds one at a time.
func TestAFullClientDelaysAndLosesNothing(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	defer fake.Close()
	cfg := PublisherConfig{Client: ClientConfig{Brokers: fake.ListenAddrs(), Logger: slog.New(slog.DiscardHandler)}}.withDefaults()
	tiny, err := kgo.NewClient(cfg.options(kgo.MaxBufferedRecords(1))...)
	require.NoError(t, err)
	p := &Publisher{cfg: cfg, current: &producer{client: tiny}, turn: make(chan struct{}, 1)}
	defer func() { require.NoError(t, p.Close()) }()

	require.NoError(t, p.PublishRecords(t.Context(), ten("t")...))
	require.EqualValues(t, 10, fake.PartitionInfo("t", 0).HighWatermark)
}

// TestATopicThatIsCreatedAgainIsWrittenTo has a client that knows the topic that was there before.
func TestATopicThatIsCreatedAgainIsWrittenTo(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"Together": false, "Alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
			require.NoError(t, err)
			defer fake.Close()
			p, err := NewPublisher(PublisherConfig{Client: ClientConfig{Brokers: fake.ListenAddrs(), Logger: slog.New(slog.DiscardHandler)}})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close()) }()
			rec := ProducerRecord{Topic: "t", Value: []byte("v"), Alone: alone}
			require.NoError(t, p.PublishRecords(t.Context(), rec))
			require.NoError(t, fake.DeleteTopic("t"))
			require.NoError(t, fake.CreateTopic("t", 1, nil))
			require.Eventually(t, func() bool { return p.PublishRecords(t.Context(), rec) == nil }, time.Minute, 100*time.Millisecond)
			require.EqualValues(t, 1, fake.PartitionInfo("t", 0).HighWatermark)
		})
	}
}

func ten(topic string) []ProducerRecord {
	recs := make([]ProducerRecord, 10)
	for i := range recs {
		recs[i].Topic = topic
	}
	return recs
}

func TestOnlyThoseThatFailedForOthersAreSentAgain(t *testing.T) {
	t.Parallel()
	errs := []error{context.DeadlineExceeded, kgo.ErrMaxBuffered, kerr.InvalidRecord, nil, errors.New("x")}
	parcels := make([]*parcel, len(errs))
	for i, err := range errs {
		parcels[i] = &parcel{ctx: t.Context(), err: err}
	}
	require.Equal(t, parcels[:2], shipment{life: t.Context()}.neighbours(parcels))

	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Empty(t, shipment{life: over}.neighbours(parcels), "its own time may be what timed out")
}

func TestAnAnswerAtTheLastMomentCounts(t *testing.T) {
	t.Parallel()
	answer := make(chan error, 1)
	answer <- nil
	require.NoError(t, late(answer, context.Canceled))
	require.ErrorIs(t, late(answer, context.Canceled), context.Canceled)
}

// TestWhoWaitsForTheTurnCanLeave holds the turn as a record does that the broker does not answer.
func TestWhoWaitsForTheTurnCanLeave(t *testing.T) {
	t.Parallel()
	p, err := NewPublisher(PublisherConfig{Client: ClientConfig{Brokers: []string{"127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	p.turn <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var failed *PublishError
	require.ErrorAs(t, p.PublishRecords(ctx, ProducerRecord{Topic: "t", Alone: true}), &failed)
	require.ErrorIs(t, failed, context.DeadlineExceeded)
	require.False(t, failed.Failed[0].Ambiguous)
}
