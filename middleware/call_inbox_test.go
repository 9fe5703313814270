package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestCall_Inbox(t *testing.T) {
	t.Parallel()

	bubble(t, "WhatTheInboxKnowsIsNotCalledFor", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, paid)
		h := b.handler(t, func(m *message.Message) error {
			if offsetOf(m) == 1 {
				return errBoom
			}
			return nil
		})
		first := b.claim(t, 1, 10, h)
		first.add(rec(0, "a"), rec(1, "b"))
		first.idle()
		first.end(0)
		b.rt.Call.Do = func(_ context.Context, r *record.Record) (any, error) {
			require.Equal(t, int64(2), r.Offset)
			return "paid", nil
		}
		next := b.claim(t, 1, 10, h)
		next.add(rec(0, "a"), rec(1, "b"), rec(2, "a"))
		next.idle()
		require.Equal(t, record.Effected, next.outcome(0))
		require.Equal(t, record.Dead, next.outcome(1))
		require.Len(t, b.topic.of(1), 2, "its letter is written again")
		require.Equal(t, record.Effected, next.outcome(2))
	})

	bubble(t, "WhatTheInboxForgotInBetweenIsCalledForAfterAll", func(t *testing.T) {
		b := newBench(t)
		calls := 0
		b.calls(t, func(context.Context, *record.Record) (any, error) { calls++; return "paid", nil })
		b.rt.Call.Inbox = forgetful{b.in}
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, "paid", record.Of(m.Context()).Reply, "never applied without a reply")
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, 1, calls)
	})

	bubble(t, "InboxThatCannotBeAskedHoldsAndNobodyIsCalled", func(t *testing.T) {
		b := newBench(t)
		down := true
		b.in.look = func() error {
			if down {
				return fault.Unavailable(errBoom, fault.Database)
			}
			return nil
		}
		b.calls(t, func(context.Context, *record.Record) (any, error) {
			require.False(t, down)
			return "paid", nil
		})
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(recs(3, oneKey)...)
		elapse(time.Hour)
		require.Contains(t, b.rt.Gates.Down(), fault.Database)
		down = false
		c.idle()
		require.Len(t, c.outcomes, 3)
	})

	bubble(t, "RecordThatTakesItsProcessDownIsNotLetIn", func(t *testing.T) {
		b := newBench(t)
		b.in.enter = func(*record.Record) error { return fault.Permanent(dedup.ErrCrashLoop) }
		d := b.calls(t, func(context.Context, *record.Record) (any, error) { t.Error("it called"); return nil, nil })
		c := b.run(t, nothing, rec(0, "k"))
		require.Equal(t, record.Dead, c.outcome(0))
		require.Equal(t, dlq.CrashLoop, b.topic.of(0)[0].Reason)
		release, ok := d.Acquire(t.Context(), nil)
		require.True(t, ok)
		release()
	})
}

type forgetful struct{ *fakeInbox }

func (f forgetful) Look(ctx context.Context, rs []*record.Record) ([]dedup.Answer, error) {
	answers, err := f.fakeInbox.Look(ctx, rs)
	if f.looked == 1 {
		answers[0] = dedup.Duplicate
	}
	return answers, err
}

// messageOf is a message under ctx.
