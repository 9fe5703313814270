package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/fault"
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

// TestWhatAnEarlierTryMayHaveWrittenIsNoCleanRefusal is the regression of a record that was written and not confirmed, was
// given up with a neighbour whose time was over, and was told as surely not written by what its next try was answered.
func TestWhatAnEarlierTryMayHaveWrittenIsNoCleanRefusal(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]*kerr.Error{
		"ItsNextTryIsNotAllowed": kerr.TopicAuthorizationFailed, "ItsNextTryIsRefused": kerr.InvalidRecord,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
			require.NoError(t, err)
			defer fake.Close()
			p, err := NewPublisher(PublisherConfig{Client: ClientConfig{Brokers: fake.ListenAddrs(), Logger: slog.New(slog.DiscardHandler)}})
			require.NoError(t, err)
			defer func() { require.NoError(t, p.Close()) }()
			lost := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1})

			p.cfg.Timeout = time.Second
			hasty := p.ship()
			p.cfg.Timeout = time.Minute
			lasting := p.ship()
			defer lasting.release()
			own, other := parcelOf(t), parcelOf(t)
			var neighbour sync.WaitGroup
			neighbour.Go(func() {
				defer hasty.release()
				hasty.send([]*parcel{other})
			})
			require.Eventually(t, func() bool { return lost.Hits() > 0 }, time.Minute, time.Millisecond)
			lasting.attempt([]*parcel{own})
			require.ErrorIs(t, own.err, context.DeadlineExceeded)
			require.NoError(t, lasting.life.Err(), "it is the neighbour's time that is over")
			neighbour.Wait()
			require.Positive(t, fake.PartitionInfo("t", 0).HighWatermark)

			lost.Remove()
			fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: second, Count: -1})
			lasting.together([]*parcel{own})
			var failed *PublishError
			require.ErrorAs(t, publishError([]*parcel{own}), &failed)
			require.ErrorIs(t, failed, second)
			require.ErrorIs(t, failed, context.DeadlineExceeded)
			require.True(t, failed.Failed[0].Ambiguous)
			require.Equal(t, fault.ClassAmbiguous, (&fault.Classifier{}).Classify(t.Context(), failed).Class)
		})
	}
}

func parcelOf(t *testing.T) *parcel {
	t.Helper()
	return &parcel{ctx: t.Context(), rec: ProducerRecord{Topic: "t", Value: []byte("v")}}
}

// TestWhatWasHandedOverAndIsNotSentAgainMayBeWritten has a caller's time end, or the client be full, before the next try.
func TestWhatWasHandedOverAndIsNotSentAgainMayBeWritten(t *testing.T) {
	t.Parallel()
	for _, next := range []error{&unsentError{context.Canceled}, kgo.ErrMaxBuffered, kerr.MessageTooLarge, kerr.UnknownTopicID} {
		q := parcelOf(t)
		for _, q.err = range []error{context.DeadlineExceeded, next} {
			q.answered()
		}
		ambiguous, err := q.verdict()
		require.True(t, ambiguous)
		require.ErrorIs(t, err, next)
		require.Equal(t, fault.ClassAmbiguous, (&fault.Classifier{}).Classify(t.Context(), err).Class)
	}
	q := parcelOf(t)
	q.err = kgo.ErrMaxBuffered
	q.answered()
	ambiguous, _ := q.verdict()
	require.False(t, ambiguous, "no try of it was sent")
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
