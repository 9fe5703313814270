package dlq_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// orders is a fake cluster with the dead letter topic of "orders".
func orders(t *testing.T) (*kfake.Cluster, []string) {
	t.Helper()
	fake := kafkatest.Fake(t, kfake.SeedTopics(1, "orders.dlq"))
	return fake, fake.ListenAddrs()
}

func one() dlq.Letter {
	return letterOf(&record.Record{Topic: "orders", Offset: 7, Value: []byte("v")})
}

// requireCopies wants at least one letter, at most n, all of the same record.
func requireCopies(t *testing.T, brokers []string, n int) {
	t.Helper()
	got := kafkatest.ReadAll(t, brokers, "orders.dlq")
	require.NotEmpty(t, got)
	require.LessOrEqual(t, len(got), n)
	for _, r := range got {
		env, _, ok := dlq.Decode(headers(r))
		require.True(t, ok)
		require.Equal(t, dlq.Coordinates{Topic: "orders", Offset: 7}, env.Origin)
		require.Equal(t, "v", string(r.Value))
	}
}

func TestWriterFailures(t *testing.T) {
	t.Parallel()
	t.Run("ALostAnswerLeavesOneLetter", func(t *testing.T) {
		t.Parallel()
		fake, brokers := orders(t)
		lost := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 2})
		require.NoError(t, writer(t, dlq.WriterConfig{Client: clientOf(brokers)}).Write(t.Context(), one()))
		require.Equal(t, 2, lost.Hits())
		requireCopies(t, brokers, 1)
	})

	t.Run("AnUnknownOutcomeIsWrittenAgain", func(t *testing.T) {
		t.Parallel()
		fake, brokers := orders(t)
		unknown := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownServerError, Count: 3})
		require.NoError(t, writer(t, dlq.WriterConfig{Client: clientOf(brokers)}).Write(t.Context(), one()))
		require.Equal(t, 3, unknown.Hits())
		requireCopies(t, brokers, 2)
	})

	t.Run("AnswersHeldPastTheTimeoutAreWrittenAgain", func(t *testing.T) {
		t.Parallel()
		fake, brokers := orders(t)
		release, held := make(chan struct{}), make(chan struct{})
		once := sync.OnceFunc(func() { close(held) })
		open := sync.OnceFunc(func() { close(release) })
		t.Cleanup(open)
		fake.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			once()
			fake.SleepControl(func() { <-release })
			return nil, nil, false
		})
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers), Timeout: time.Second})
		requireHeld(t, w.Write(t.Context(), one()))
		<-held
		open()
		require.Eventually(t, func() bool { return w.Write(t.Context(), one()) == nil }, patience, time.Millisecond)
		requireCopies(t, brokers, 10)
	})

	t.Run("ATopicThatIsMissingHoldsAndIsFoundOnceItIsThere", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t)
		w := writer(t, dlq.WriterConfig{Client: clientOf(fake.ListenAddrs())})
		err := w.Write(t.Context(), one())
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)
		require.ErrorContains(t, err, `orders/0/7 to "orders.dlq"`)
		requireHeld(t, err)
		require.NoError(t, fake.CreateTopic("orders.dlq", 1, nil))
		require.NoError(t, w.Write(t.Context(), one()))
	})

	t.Run("AMissingPermissionHoldsAtOnce", func(t *testing.T) {
		t.Parallel()
		fake, brokers := orders(t)
		denied := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		err := writer(t, dlq.WriterConfig{Client: clientOf(brokers), Timeout: patience}).Write(t.Context(), one())
		require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
		requireHeld(t, err)
		require.Equal(t, 1, denied.Hits())
	})

	t.Run("ABrokerThatIsGoneHolds", func(t *testing.T) {
		t.Parallel()
		fake, brokers := orders(t)
		fake.Close()
		requireHeld(t, writer(t, dlq.WriterConfig{Client: clientOf(brokers), Timeout: time.Second}).Write(t.Context(), one()))
	})

	t.Run("AnEndedDeliveryEndsTheWrite", func(t *testing.T) {
		t.Parallel()
		fake, brokers := orders(t)
		fake.Close()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(record.ErrRevoked)
		err := writer(t, dlq.WriterConfig{Client: clientOf(brokers), Timeout: patience}).Write(ctx, one())
		require.ErrorIs(t, err, record.ErrRevoked)
		require.Equal(t, fault.ClassCancelled, (&fault.Classifier{}).Classify(ctx, err).Class)
	})

	t.Run("ALetterNeverGoesToItsOwnInput", func(t *testing.T) {
		t.Parallel()
		fake, brokers := orders(t)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers), Topic: func(string) string { return "orders.dlq" }})
		err := w.Write(t.Context(), letterOf(&record.Record{Topic: "orders.dlq", Offset: 3}))
		var own *dlq.OwnInputError
		require.ErrorAs(t, err, &own)
		require.Contains(t, own.Hint(), "the route on orders.dlq")
		require.ErrorContains(t, err, "orders.dlq/0/3")
		requireHeld(t, err)
		require.Zero(t, fake.PartitionInfo("orders.dlq", 0).HighWatermark)
	})

	t.Run("TheLetterNamesItsTopicBeforeTheWriter", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t, kfake.SeedTopics(1, "a", "b"))
		w := writer(t, dlq.WriterConfig{Client: clientOf(fake.ListenAddrs()), Topic: func(string) string { return "a" }})
		require.NoError(t, w.Write(t.Context(), one()))
		named := one()
		named.Topic = "b"
		require.NoError(t, w.Write(t.Context(), named))
		require.EqualValues(t, 1, fake.PartitionInfo("a", 0).HighWatermark)
		require.EqualValues(t, 1, fake.PartitionInfo("b", 0).HighWatermark)
	})

	t.Run("AReplayedRecordWithoutAnEnvelopeIsReported", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t, kfake.SeedTopics(1, "orders.billing.replay.dlq"))
		var reports []record.Report
		w := writer(t, dlq.WriterConfig{Client: clientOf(fake.ListenAddrs()), Hooks: &record.Hooks{
			OnReport: func(r record.Report) { reports = append(reports, r) },
		}})
		hs := []record.Header{{Key: "headrace-dlq", Value: []byte("9")}}
		require.NoError(t, w.Write(t.Context(), letterOf(&record.Record{Topic: "orders.billing.replay", Offset: 5, Headers: hs, Replay: true})))
		require.Len(t, reports, 1)
		require.Equal(t, "replay_without_envelope", reports[0].Kind)
		require.EqualValues(t, 5, reports[0].Offset)
		_, original, ok := dlq.Decode(headers(kafkatest.ReadAll(t, fake.ListenAddrs(), "orders.billing.replay.dlq")[0]))
		require.True(t, ok)
		require.Equal(t, hs, original)
	})

	t.Run("CloseEndsWrites", func(t *testing.T) {
		t.Parallel()
		_, brokers := orders(t)
		w, err := dlq.NewWriter(dlq.WriterConfig{Client: clientOf(brokers)})
		require.NoError(t, err)
		require.NoError(t, w.Close())
		requireHeld(t, w.Write(t.Context(), one()))
	})

	t.Run("ImpossibleConfigurationsAreRefused", func(t *testing.T) {
		t.Parallel()
		_, err := dlq.NewWriter(dlq.WriterConfig{})
		require.ErrorIs(t, err, kafka.ErrNoBrokers)
		_, err = dlq.NewWriter(dlq.WriterConfig{Client: clientOf([]string{"a:1"}), Timeout: time.Millisecond})
		require.ErrorContains(t, err, "Timeout 1ms is below 1s")
	})

	t.Run("LettersWithoutAnErrorAreWritten", func(t *testing.T) {
		t.Parallel()
		_, brokers := orders(t)
		l := one()
		l.Err, l.Reason = nil, dlq.Manual
		require.NoError(t, writer(t, dlq.WriterConfig{Client: clientOf(brokers)}).Write(t.Context(), l))
		env, _, _ := dlq.Decode(headers(kafkatest.ReadAll(t, brokers, "orders.dlq")[0]))
		require.Equal(t, dlq.Manual, env.Reason)
		require.Empty(t, env.Message)
		require.True(t, env.FirstFailed.IsZero())
	})
}

// TestWriterOnBrokersThatStop writes while the brokers are held in their tracks and after that.
func TestWriterOnBrokersThatStop(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, 1)
	from := source(t, c.Brokers(), 1)
	w := writer(t, dlq.WriterConfig{Client: clientOf(c.Brokers()), Timeout: 3 * time.Second})
	l := letterOf(&record.Record{Topic: from, Value: []byte("v")})
	require.NoError(t, w.Write(t.Context(), l))

	c.Pause(t, 1)
	requireHeld(t, w.Write(t.Context(), l))
	c.Resume(t, 1)
	require.Eventually(t, func() bool { return w.Write(t.Context(), l) == nil }, 2*patience, time.Millisecond)

	c.Kill(t, 1)
	requireHeld(t, w.Write(t.Context(), l))
	c.Restart(t, 1)
	require.Eventually(t, func() bool { return w.Write(t.Context(), l) == nil }, 2*patience, time.Millisecond)

	got := kafkatest.ReadAll(t, c.Brokers(), dlq.DefaultTopic(from))
	require.GreaterOrEqual(t, len(got), 3)
	for _, r := range got {
		env, _, ok := dlq.Decode(headers(r))
		require.True(t, ok)
		require.Equal(t, from, env.Origin.Topic)
	}
}

func TestErrorsTellTheirNumbers(t *testing.T) {
	t.Parallel()
	err := &dlq.TooLargeError{
		Source: dlq.Coordinates{Topic: "orders", Partition: 1, Offset: 2}, Topic: "orders.dlq", Original: 900, Letter: 1200, Err: kerr.MessageTooLarge,
	}
	require.EqualError(t, err, `orders/1/2 of 900 bytes is too large for "orders.dlq" with the smallest envelope, 1200 bytes: `+kerr.MessageTooLarge.Error())
	require.ErrorIs(t, err, dlq.ErrTooLarge)
	require.ErrorIs(t, err, kerr.MessageTooLarge)
	require.NotErrorIs(t, err, errors.ErrUnsupported)
}
