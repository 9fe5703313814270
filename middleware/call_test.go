package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

type doFunc = func(ctx context.Context, r *record.Record) (any, error)

// calls makes the route one that calls a dependency of its own.
func (b *bench) calls(t *testing.T, do doFunc, change ...func(*downstream.Config)) *downstream.Dependency {
	t.Helper()
	cfg := downstream.Config{Name: "payments", RefuseInTransaction: true}
	for _, f := range change {
		f(&cfg)
	}
	d, err := downstream.New(cfg)
	require.NoError(t, err)
	b.rt.Repeatable = true
	b.rt.Call = &middleware.Call{Dependency: d, Do: do, Inbox: b.in}
	return d
}

// paid is a call that succeeds at once.
func paid(context.Context, *record.Record) (any, error) { return "paid", nil }

// callOf gives a call that takes d.
func callOf(d time.Duration) doFunc {
	return func(ctx context.Context, _ *record.Record) (any, error) { return "paid", sleep(ctx, d) }
}

func TestCall(t *testing.T) {
	t.Parallel()

	bubble(t, "RefusedWithoutWhatItNeeds", func(t *testing.T) {
		b := newBench(t)
		b.rt.Call = &middleware.Call{Timeout: -1}
		_, err := middleware.Stack(b.rt)
		for _, part := range []string{"Call.Dependency", "Call.Do", "Call.Inbox", "Call.Timeout (-1ns)", "Repeatable"} {
			require.ErrorContains(t, err, part)
		}
		for _, name := range []string{middleware.RetryAfter, middleware.Flood} {
			b = newBench(t)
			b.calls(t, paid, func(c *downstream.Config) { c.Name = name })
			_, err = middleware.Stack(b.rt)
			require.ErrorContains(t, err, name)
		}
		b = newBench(t)
		d := b.calls(t, paid)
		b.rt.Gates = middleware.NewGates(downstream.GateConfig{}, downstream.NewGate(downstream.GateConfig{Name: "payments"}))
		_, err = middleware.Stack(b.rt)
		require.ErrorContains(t, err, "another gate")
		b = newBench(t)
		b.rt.Call, b.rt.Repeatable = &middleware.Call{Dependency: d, Do: paid, Inbox: b.in}, true
		b.rt.Gates = middleware.NewGates(downstream.GateConfig{}, d.Gate())
		b.rt.Retry.CallTimeout = time.Second
		_, err = middleware.Stack(b.rt)
		require.ErrorContains(t, err, "Retry.CallTimeout (1s) must be Call.Timeout (10s)")
	})

	bubble(t, "BudgetHasRoomForTheCalls", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, paid)
		b.handler(t, nothing)
		require.Equal(t, 3*(10+5)*time.Second+600*time.Millisecond, b.rt.Retry.Budget)
	})

	bubble(t, "ReplyReachesTheHandlerAndTheCallKnowsForWhomItIs", func(t *testing.T) {
		b := newBench(t)
		var d *downstream.Dependency
		d = b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			require.Same(t, r, record.Of(ctx))
			p, ok := downstream.PermitFrom(ctx)
			require.True(t, ok)
			require.Equal(t, downstream.Permit{Dependency: d, Group: "billing", Route: "ledger", ID: r.Identity.Key}, p)
			require.NotEqual(t, uuid.Nil, p.ID)
			at, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, 10*time.Second, time.Until(at))
			_, running := r.RunningSince()
			require.True(t, running)
			_, err := record.Records(messageOf(ctx))
			require.Error(t, err, "it sees no neighbour")
			return r.Offset * 10, nil
		})
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, offsetOf(m)*10, record.Of(m.Context()).Reply)
			return nil
		}, recs(5, ownKey)...)
		require.Len(t, c.outcomes, 5)
		require.Equal(t, 5, b.in.looked, "asked once each")
		require.Zero(t, b.in.inCalls())
	})

	bubble(t, "AReplyOfNilIsOne", func(t *testing.T) {
		b := newBench(t)
		calls, applies := 0, 0
		b.calls(t, func(context.Context, *record.Record) (any, error) { calls++; return nil, nil })
		c := b.run(t, func(*message.Message) error {
			if applies++; applies < 3 {
				return fault.Transient(errBoom)
			}
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, 1, calls)
	})

	bubble(t, "FailedApplyDoesNotCallAgain", func(t *testing.T) {
		b := newBench(t)
		var calls atomic.Int32
		b.calls(t, func(context.Context, *record.Record) (any, error) { calls.Add(1); return "paid", nil })
		tries := map[int64]int{}
		c := b.run(t, func(m *message.Message) error {
			if tries[offsetOf(m)]++; offsetOf(m) == 1 && tries[1] < 3 {
				return fault.Transient(errBoom)
			}
			return nil
		}, recs(3, oneKey)...)
		require.Len(t, c.outcomes, 3)
		require.Equal(t, map[int64]int{0: 1, 1: 3, 2: 1}, tries)
		require.Equal(t, int32(3), calls.Load())
	})

	bubble(t, "SkippedByItsCallIsSkipped", func(t *testing.T) {
		b := newBench(t)
		var calls atomic.Int32
		d := b.calls(t, func(context.Context, *record.Record) (any, error) {
			calls.Add(1)
			return nil, fault.Skip("no such order")
		})
		c := b.run(t, func(*message.Message) error { t.Error("it ran"); return nil }, recs(30, ownKey)...)
		require.Equal(t, record.Skipped, c.outcome(0))
		require.Len(t, c.outcomes, 30)
		require.Equal(t, int32(30), calls.Load())
		require.Equal(t, record.BreakerClosed, d.State())
	})

	bubble(t, "SkippedByItsDecoderIsNotCalledFor", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(context.Context, *record.Record) (any, error) { t.Error("it called"); return nil, nil })
		b.rt.Decode = func(*record.Record) error { return fault.Skip("another type") }
		require.Equal(t, record.Skipped, b.run(t, nothing, rec(0, "k")).outcome(0))
	})

	for name, end := range map[string]func(){"Panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		bubble(t, name+"IsTheRecordsFailureAndNobodyElses", func(t *testing.T) {
			b := newBench(t)
			d := b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
				if r.Offset%2 == 1 {
					end()
				}
				return "paid", nil
			}, func(c *downstream.Config) { c.MaxConcurrent = 3 })
			c := b.run(t, nothing, recs(60, ownKey)...)
			for o := range int64(60) {
				want := []record.Outcome{record.Effected, record.Dead}[o%2]
				require.Equal(t, want, c.outcome(o))
			}
			l := b.topic.of(1)[0]
			require.Equal(t, dlq.Panic, l.Reason)
			require.Equal(t, 1, l.Attempts)
			require.Equal(t, record.BreakerClosed, d.State())
		})
	}

	bubble(t, "LetterSaysWhatTheCallReturned", func(t *testing.T) {
		b := newBench(t)
		refused := errors.New("402 card refused")
		b.calls(t, func(context.Context, *record.Record) (any, error) { return nil, refused })
		b.run(t, nothing, rec(0, "k"))
		l := b.topic.of(0)[0]
		require.Equal(t, refused, l.Err, "itself, without a wrap of ours")
		require.Equal(t, dlq.Permanent, l.Reason)
		require.Equal(t, 1, l.Attempts)
	})

	bubble(t, "OneSpanACallAndOneAnApply", func(t *testing.T) {
		b := newBench(t)
		spans := traced(b)
		var attempts log[record.AttemptInfo]
		b.rt.Hooks.OnAttempt = attempts.add
		failed := false
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			if !failed {
				failed = true
				return nil, fault.Transient(errBoom)
			}
			return "paid", sleep(ctx, time.Second)
		})
		b.run(t, nothing, rec(0, "k"))
		ended := spans.Ended()
		require.Len(t, ended, 4, "two calls, one apply, the record")
		require.Equal(t, "payments", attr(ended[1], "headrace.dependency").AsString())
		require.Empty(t, attr(ended[2], "headrace.dependency").AsString())
		require.Equal(t, []record.AttemptInfo{
			{Route: "ledger", Class: "transient", Attempt: 1},
			{Route: "ledger", Took: time.Second, Attempt: 1}, // the first was free
		}, attempts.get())
	})
}

func messageOf(ctx context.Context) *message.Message {
	m := message.NewMessage("", nil)
	m.SetContext(ctx)
	return m
}
