package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestStarted(t *testing.T) {
	t.Parallel()
	t.Run("IsToldEachClaimsFirstRecordBeforeAnythingIsHandedOut", func(t *testing.T) {
		virtual(t, 2, startedTellsTheFirstRecord)
	})
	t.Run("ThatBlocksCostsTheClaimAWaitAndNoMore", func(t *testing.T) {
		virtual(t, 1, startedThatBlocks)
	})
}

func startedTellsTheFirstRecord(w *world) {
	w.produceMany(0, 5)
	w.produceMany(1, 3)
	for _, from := range []int64{0, 5} { // the second life begins where the first has committed
		told, got, ended := &seen{}, &seen{}, &seen{}
		s := w.source()
		sub := s.Subscriber(kafka.Subscription{Started: func(_ context.Context, first *record.Record) func(context.Context) {
			require.Empty(w.t, got.of(first.Partition))
			told.add(first)
			return func(context.Context) { ended.add(first) }
		}})
		wg := handle(w.subscribe(sub), func(msg *message.Message) error {
			got.add(records(msg)[0])
			return nil
		})
		wait(5 * time.Second)
		require.Equal(w.t, []int64{from}, told.of(0))
		require.Empty(w.t, ended.of(0))
		require.NoError(w.t, s.Close())
		wg.Wait()
		require.Equal(w.t, []int64{from}, ended.of(0))
		w.produceMany(0, 1)
	}
}

func startedThatBlocks(w *world) {
	w.produceMany(0, 5)
	s := w.source()
	sub := s.Subscriber(kafka.Subscription{Started: func(ctx context.Context, _ *record.Record) func(context.Context) {
		<-ctx.Done()
		return func(ctx context.Context) { <-ctx.Done() }
	}})
	wg := handle(w.subscribe(sub), func(*message.Message) error { return nil })
	wait(15 * time.Second)
	require.EqualValues(w.t, 5, w.committed(0))
	require.NoError(w.t, s.Close())
	wg.Wait()
}
