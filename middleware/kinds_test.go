package middleware_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// queueOnce and batchOnce are what an inbox does with work of these kinds when everything goes well, and nobody's
// statements fail.
func queueOnce(queued map[int64]int) effects {
	return func(ctx context.Context, rs []*record.Record, work dedup.Work) {
		for _, r := range rs {
			b := &pgx.Batch{}
			if r.Err = work.(dedup.Queue)(ctx, b, r); r.Err == nil {
				queued[r.Offset] = b.Len()
				r.Settle(record.Effected)
			}
		}
	}
}

func batchOnce(ctx context.Context, rs []*record.Record, work dedup.Work) {
	err := work.(dedup.Batch)(ctx, nil, rs)
	named, some := fault.AsMembers(err)
	for i, r := range rs {
		if r.Err = err; some {
			r.Err = named[i]
		}
		if r.Err == nil {
			r.Settle(record.Effected)
		}
	}
}

func TestInbox_Kinds(t *testing.T) {
	t.Parallel()

	bubble(t, "QueuedHandlerFindsItsBatch", func(t *testing.T) {
		b := newBench(t)
		queued := map[int64]int{}
		b.rt.Kind, b.rt.Inbox = dedup.Queued, queueOnce(queued)
		c := b.run(t, func(m *message.Message) error {
			require.Nil(t, dedup.Tx(m.Context()))
			require.NotNil(t, record.Of(m.Context()))
			dedup.Pending(m.Context()).Queue("select 1")
			if record.Of(m.Context()).Offset == 1 {
				return fault.Permanent(errBoom)
			}
			return nil
		}, recs(3, ownKey)...)
		require.Equal(t, map[int64]int{0: 1, 2: 1}, queued)
		require.Equal(t, map[int64][]record.Outcome{
			0: {record.Effected}, 1: {record.Dead}, 2: {record.Effected},
		}, c.outcomes)
	})

	bubble(t, "GroupedHandlerGetsAMessageOfMany", func(t *testing.T) {
		b := newBench(t)
		b.rt.Kind, b.rt.Inbox = dedup.Grouped, effects(batchOnce)
		c := b.run(t, func(m *message.Message) error {
			rs, err := record.Records(m)
			require.NoError(t, err)
			if len(rs) == 3 {
				return fault.Members{1: fault.Permanent(errBoom)}
			}
			return nil
		}, recs(3, ownKey)...)
		require.Equal(t, map[int64][]record.Outcome{
			0: {record.Effected}, 1: {record.Dead}, 2: {record.Effected},
		}, c.outcomes)
	})

	for name, kind := range map[string]dedup.Kind{"Queued": dedup.Queued, "Grouped": dedup.Grouped} {
		bubble(t, name+"HandlerThatReturnsMessagesFailsForGood", func(t *testing.T) {
			b := newBench(t)
			b.rt.Kind, b.rt.Inbox = kind, effects(batchOnce)
			if kind == dedup.Queued {
				b.rt.Inbox = queueOnce(map[int64]int{})
			}
			layers, err := middleware.Stack(b.rt)
			require.NoError(t, err)
			h := message.HandlerFunc(message.PassthroughHandler)
			for i := len(layers) - 1; i >= 0; i-- {
				h = layers[i](h)
			}
			c := b.claim(t, 1, 1, h)
			c.add(rec(0, "k"))
			c.idle()
			require.ErrorContains(t, b.topic.of(0)[0].Err, "outbox")
		})
	}

	bubble(t, "EachRecordOfAGroupHasItsAttemptsSpan", func(t *testing.T) {
		b := newBench(t)
		spans := traced(b)
		b.rt.Kind, b.rt.Inbox = dedup.Grouped, effects(batchOnce)
		b.run(t, func(m *message.Message) error {
			rs, err := record.Records(m)
			require.NoError(t, err)
			if len(rs) == 3 {
				return fault.Members{1: fault.Permanent(errBoom)}
			}
			return nil
		}, recs(3, ownKey)...)
		var attempts, failed, links int
		for _, s := range spans.Ended() {
			if s.Name() != "attempt ledger" {
				continue
			}
			attempts++
			links += len(s.Links())
			if s.Status().Code == codes.Error {
				failed++
			}
		}
		require.Equal(t, []int{3, 1, 2}, []int{attempts, failed, links}, "attempts, failed, links")
	})

	t.Run("WorkOfAnotherKindIsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := middleware.Stack(&middleware.Route{
			Name: "ledger", Group: "billing", Inbox: effects(batchOnce), Graves: &fakeInbox{}, DeadLetters: newTopic(), Kind: dedup.Queued,
			Work: dedup.Apply(func(context.Context, pgx.Tx, *record.Record) error { return nil }),
		})
		require.ErrorContains(t, err, "its Work is executed, and its Kind says queued")
	})
}
