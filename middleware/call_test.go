package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
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
	cfg := downstream.Config{Name: "payments"}
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

	bubble(t, "ByKeyTheNextCallComesWhenTheOneBeforeIsSettled", func(t *testing.T) {
		b := newBench(t)
		var done log[string]
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			done.add("call " + string(r.Value))
			return "paid", sleep(ctx, time.Second)
		})
		b.rt.Hooks.OnSettle = func(i record.SettleInfo) { done.add("settled " + string('0'+rune(i.Offset))) }
		c := b.run(t, nothing, rec(0, "a"), rec(1, "a"), rec(2, "a"))
		require.Len(t, c.outcomes, 3)
		require.Equal(t, []string{"call 0", "settled 0", "call 1", "settled 1", "call 2", "settled 2"}, done.get())
	})

	bubble(t, "WhatIsBehindAFailureIsNotCalled", func(t *testing.T) {
		b := newBench(t)
		var called log[int64]
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			called.add(r.Offset)
			if r.Offset == 0 {
				return nil, fault.RetryAfter(errBoom, time.Minute)
			}
			return "paid", nil
		})
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(rec(0, "a"), rec(1, "a"), rec(2, "b"))
		elapse(time.Second)
		require.ElementsMatch(t, []int64{0, 2}, called.get())
		require.Equal(t, record.Effected, c.outcome(2))
	})

	bubble(t, "WhoeverIsDoneGoesOnWhileOthersStillCall", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			return "paid", sleep(ctx, time.Duration(1+r.Offset)*time.Second)
		})
		b.run(t, nothing, recs(8, ownKey)...)
		for o := range int64(8) {
			require.Equal(t, time.Duration(1+o)*time.Second, b.at(o))
		}
	})

	bubble(t, "DonePermanentAndHeldInOneMessageSettleIndependently", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(_ context.Context, r *record.Record) (any, error) {
			switch {
			case r.Offset == 1:
				return nil, errBoom
			case r.Offset == 2 && time.Since(b.began) < time.Second:
				return nil, fault.Unavailable(errBoom, "payments")
			}
			return "paid", nil
		})
		c := b.run(t, nothing, recs(3, ownKey)...)
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, record.Dead, c.outcome(1))
		require.Equal(t, record.Effected, c.outcome(2))
		require.Less(t, b.at(0), 50*time.Millisecond)
		require.Less(t, b.at(1), 50*time.Millisecond)
		require.GreaterOrEqual(t, b.at(2), time.Second)
	})

	bubble(t, "NoMoreSideBySideThanTheDependencyTakes", func(t *testing.T) {
		b := newBench(t)
		var now, most atomic.Int32
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			return "paid", sleep(ctx, time.Second)
		}, func(c *downstream.Config) { c.MaxConcurrent = 7 })
		c := b.claim(t, 2, 50, b.handler(t, nothing))
		c.add(recs(70, ownKey)...)
		c.idle()
		require.Equal(t, int32(7), most.Load())
		require.Equal(t, 10*time.Second, time.Since(b.began), "and no fewer")
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

	bubble(t, "TimeoutLeavesTheOutcomeUnknown", func(t *testing.T) {
		b := newBench(t)
		var errs log[error]
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if r.Key != nil && string(r.Key) == "good" {
				return "paid", nil // somebody is answered: what fails beside it is charged
			}
			<-ctx.Done()
			errs.add(context.Cause(ctx))
			return nil, context.Cause(ctx)
		})
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(rec(0, "bad"))
		for i := range 60 {
			elapse(time.Second)
			c.add(rec(int64(1+i), "good"))
		}
		c.idle()
		l := b.topic.of(0)[0]
		require.Equal(t, dlq.UnknownOutcome, l.Reason)
		require.Equal(t, "ambiguous", l.Class)
		require.Equal(t, 3, l.Attempts)
		require.Len(t, errs.get(), 3)
		require.ErrorIs(t, errs.get()[0], context.DeadlineExceeded)
		require.ErrorContains(t, errs.get()[0], "timeout of 10s")
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, errs.get()[0], &timeout)
		require.True(t, timeout.Timeout())
		require.Empty(t, b.reports.kinds())
	})

	bubble(t, "TimedOutThenBusyIsEffectedAndChargedOnce", func(t *testing.T) {
		b := newBench(t)
		var charged, busy atomic.Int32
		var ids log[uuid.UUID]
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			p, _ := downstream.PermitFrom(ctx)
			ids.add(p.ID)
			switch {
			case charged.Load() == 0: // it charges, and the answer is late
				charged.Add(1)
				return nil, sleep(ctx, time.Minute)
			case busy.Add(1) <= 2: // the first one is still at work there
				return nil, fault.Busy(errors.New("409 in progress"))
			}
			return "charged before", nil
		})
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, "charged before", record.Of(m.Context()).Reply)
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, int32(1), charged.Load())
		require.Len(t, ids.get(), 4)
		for _, id := range ids.get() {
			require.Equal(t, ids.get()[0], id, "the same key each time")
		}
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

	bubble(t, "PanicOutsideOfTheCallGivesBackAndStopsNobody", func(t *testing.T) {
		for _, end := range []func(){func() { panic("hook") }, runtime.Goexit} {
			b := newBench(t)
			var bad atomic.Bool
			bad.Store(true)
			b.rt.Hooks.OnAttempt = func(record.AttemptInfo) {
				if bad.Swap(false) {
					end()
				}
			}
			d := b.calls(t, paid, func(c *downstream.Config) { c.MaxConcurrent = 1 })
			c := b.run(t, nothing, recs(9, ownKey)...)
			require.Len(t, c.outcomes, 9)
			for o := range int64(9) {
				require.Empty(t, b.topic.of(o))
			}
			release, ok := d.Acquire(t.Context(), nil)
			require.True(t, ok, "no place is lost")
			release()
		}
	})

	bubble(t, "PanicInsideWaitsForThoseThatStillCall", func(t *testing.T) {
		b := newBench(t)
		var calling atomic.Int32
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			calling.Add(1)
			defer calling.Add(-1)
			return "paid", sleep(ctx, time.Duration(r.Offset)*time.Second)
		})
		passes := 0
		b.rt.Inbox = effects(func(ctx context.Context, rs []*record.Record, work dedup.Work) {
			if passes++; passes == 1 {
				panic("inbox")
			}
			b.in.Run(ctx, rs, work)
		})
		c := newClaim(1, 10, nil)
		_, err := deliver(b.handler(t, nothing), c, recs(3, ownKey)...)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, calling.Load(), "given back when nobody writes to them any more")
		require.Equal(t, 3, c.givenBack)
		c.end(0)
	})
}

func TestCall_Stuck(t *testing.T) {
	t.Parallel()

	bubble(t, "ItsRecordGoesOnWithoutIt", func(t *testing.T) {
		b := newBench(t)
		leave := make(chan struct{})
		var calls atomic.Int32
		d := b.calls(t, func(context.Context, *record.Record) (any, error) {
			if calls.Add(1) == 1 {
				<-leave
				return "late", nil
			}
			return "paid", nil
		}, func(c *downstream.Config) { c.MaxConcurrent = 2 })
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, "paid", record.Of(m.Context()).Reply)
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, []string{record.ReportStuckRecord}, b.reports.kinds())
		require.Equal(t, 15*time.Second, b.reports.all[0].Age)
		require.Less(t, b.at(0), 16*time.Second)
		s, ok := b.rt.Stuck()
		require.True(t, ok)
		require.Equal(t, dedup.Stuck{Route: "ledger", Topic: "orders", Since: b.began}, s)
		require.Equal(t, 1, b.in.inCalls(), "it may still kill the process")

		first, ok := d.Acquire(t.Context(), nil)
		require.True(t, ok)
		full, cancel := context.WithCancel(t.Context())
		cancel()
		_, ok = d.Acquire(full, nil)
		require.False(t, ok, "it has taken its place along")
		close(leave)
		synctest.Wait()
		_, ok = b.rt.Stuck()
		require.False(t, ok)
		second, ok := d.Acquire(t.Context(), nil)
		require.True(t, ok)
		first()
		second()
		require.Zero(t, b.in.inCalls())
	})

	bubble(t, "TheyAreNoMoreThanThePlaces", func(t *testing.T) {
		b := newBench(t)
		leave := make(chan struct{})
		var stuck atomic.Int32
		b.calls(t, func(context.Context, *record.Record) (any, error) {
			stuck.Add(1)
			<-leave
			return "late", nil
		}, func(c *downstream.Config) { c.MaxConcurrent = 4; c.Breaker.MinRequests = 1000 })
		c := b.claim(t, 4, 10, b.handler(t, nothing))
		c.add(recs(100, ownKey)...)
		elapse(time.Hour)
		require.Equal(t, int32(4), stuck.Load())
		require.Empty(t, c.outcomes)
		close(leave)
		c.idle()
		require.Len(t, c.outcomes, 100)
	})

	bubble(t, "DoesNotKeepTheClaimPastItsGrace", func(t *testing.T) {
		b := newBench(t)
		leave := make(chan struct{})
		b.calls(t, func(context.Context, *record.Record) (any, error) { <-leave; return "late", nil })
		h := b.handler(t, nothing)
		c := newClaim(1, 10, nil)
		var served sync.WaitGroup
		served.Go(func() { c.serve(h) })
		c.add(rec(0, "k"))
		synctest.Wait()
		began := time.Now()
		c.end(time.Second)
		require.Equal(t, time.Second, time.Since(began))
		served.Wait()
		require.Equal(t, 6*time.Second, time.Since(began), "the handler is back a HardGrace later")
		require.Empty(t, c.outcomes)
		close(leave)
	})
}

func TestCall_Shutdown(t *testing.T) {
	t.Parallel()

	bubble(t, "SoftEndBeginsNoCallAndEndsTheWaitForAPlace", func(t *testing.T) {
		b := newBench(t)
		var calls atomic.Int32
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			calls.Add(1)
			return "paid", sleep(ctx, 5*time.Second)
		}, func(c *downstream.Config) { c.MaxConcurrent = 2 })
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(recs(20, ownKey)...)
		elapse(time.Second)
		began := time.Now()
		c.end(10 * time.Second)
		require.Equal(t, 4*time.Second, time.Since(began), "what is under way may finish")
		require.Equal(t, int32(2), calls.Load())
		require.Empty(t, b.topic.letters)
		require.Len(t, c.outcomes, 2, "and their answers are not lost: nobody calls for them again")
	})

	bubble(t, "AnswerThatComesAfterASoftEndIsApplied", func(t *testing.T) {
		for _, takes := range []time.Duration{50 * time.Millisecond, time.Second} { // with the lane, and without
			b := newBench(t)
			var calls atomic.Int32
			b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
				calls.Add(1)
				return string(r.Value), sleep(ctx, takes)
			})
			c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
				require.Equal(t, string(m.Payload), record.Of(m.Context()).Reply)
				return nil
			}))
			c.add(recs(4, func(i int) string { return []string{"a", "b"}[i%2] })...) // two of each key
			elapse(takes - time.Millisecond)
			c.end(10 * time.Second)
			require.Equal(t, int32(2), calls.Load(), "those behind them do not call any more")
			require.Len(t, c.outcomes, 2)
			require.Equal(t, record.Effected, c.outcome(0))
			require.Equal(t, record.Effected, c.outcome(1))
		}
	})

	bubble(t, "HardEndCancelsWithItsCause", func(t *testing.T) {
		b := newBench(t)
		var cause log[error]
		var classes log[string]
		b.rt.Hooks.OnAttempt = func(i record.AttemptInfo) { classes.add(i.Class) }
		d := b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			err := sleep(ctx, time.Minute)
			cause.add(err)
			return nil, err
		})
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(recs(30, ownKey)...)
		synctest.Wait()
		c.end(time.Second)
		synctest.Wait()
		require.ErrorIs(t, cause.get()[0], record.ErrRevoked)
		require.Equal(t, "cancelled", classes.get()[0])
		require.Empty(t, c.outcomes)
		require.Equal(t, record.BreakerClosed, d.State(), "it is nobody's failure")
	})
}

// forgetful knows of everything once, and has forgotten it then.
type forgetful struct{ *fakeInbox }

func (f forgetful) Look(ctx context.Context, rs []*record.Record) ([]dedup.Answer, error) {
	answers, err := f.fakeInbox.Look(ctx, rs)
	if f.looked == 1 {
		answers[0] = dedup.Duplicate
	}
	return answers, err
}

// messageOf is a message under ctx.
func messageOf(ctx context.Context) *message.Message {
	m := message.NewMessage("", nil)
	m.SetContext(ctx)
	return m
}

func TestCall_Lanes(t *testing.T) {
	t.Parallel()

	bubble(t, "SlowCallBlocksItsKeyAndNotItsNeighbours", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if r.Offset%100 == 0 {
				return "paid", sleep(ctx, 9*time.Second)
			}
			return "paid", sleep(ctx, 10*time.Millisecond)
		})
		c := b.claim(t, 1, 100, b.handler(t, nothing))
		c.add(recs(3000, ownKey)...)
		c.idle()
		require.Len(t, c.outcomes, 3000)
		require.Less(t, time.Since(b.began), 20*time.Second, "not 30 × 9s")
	})

	bubble(t, "WhoWaitsForAPlaceKeepsItsLane", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, callOf(5*time.Second), func(c *downstream.Config) { c.MaxConcurrent = 5 })
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(recs(100, ownKey)...)
		elapse(time.Second)
		c.mu.Lock()
		inFlight := c.inFlight()
		c.mu.Unlock()
		require.LessOrEqual(t, inFlight, 20, "two lanes of ten")
		c.idle()
		require.Equal(t, 100*time.Second, time.Since(b.began))
	})

	// Whoever gets them next would call again.
	bubble(t, "ClaimThatEndsMeanwhileAppliesWhatWasCalledFor", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, callOf(5*time.Second))
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(recs(3, ownKey)...)
		elapse(time.Second)
		require.Equal(t, 3, c.maxWaits)
		began := time.Now()
		c.end(10 * time.Second)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Len(t, c.outcomes, 3)
		require.Zero(t, c.givenBack)
	})

	bubble(t, "ClaimThatEndsForGoodMeanwhileAppliesNothingMore", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, callOf(5*time.Second))
		c := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { t.Error("it ran"); return nil }))
		c.add(recs(3, ownKey)...)
		elapse(time.Second)
		c.end(time.Second)
		synctest.Wait()
		require.Empty(t, c.outcomes)
	})
}

func TestCall_Failures(t *testing.T) {
	t.Parallel()

	bubble(t, "DoNotWaitForSlowCallsBesideThem", func(t *testing.T) {
		b := newBench(t)
		busy := 0
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			switch {
			case r.Offset == 1:
				return nil, errBoom
			case r.Offset == 2 && busy < 3:
				busy++
				return nil, fault.Busy(errBoom)
			case r.Offset == 3:
				return nil, sleep(ctx, 9*time.Second)
			}
			return "paid", nil
		})
		c := b.run(t, nothing, rec(0, "a"), rec(1, "b"), rec(2, "c"), rec(3, "d"), rec(4, "b"))
		require.Equal(t, record.Dead, c.outcome(1))
		require.Less(t, b.at(1), 50*time.Millisecond)
		require.Less(t, b.at(4), 50*time.Millisecond, "and what was behind it")
		require.Less(t, b.at(2), 2*time.Second, "tried again meanwhile")
		require.Equal(t, 9*time.Second, b.at(3))
		require.Len(t, c.outcomes, 5)
	})
}
