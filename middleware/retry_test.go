package middleware_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

func TestRetry(t *testing.T) {
	t.Parallel()

	bubble(t, "DonePermanentAndHeldInOneMessageSettleIndependently", func(t *testing.T) {
		b := newBench(t)
		c := b.run(t, func(m *message.Message) error {
			switch {
			case offsetOf(m) == 1:
				return errBoom
			case offsetOf(m) == 2 && time.Since(b.began) < time.Second:
				return fault.Unavailable(errBoom, "payments")
			}
			return nil
		}, recs(3, ownKey)...)
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, record.Dead, c.outcome(1))
		require.Equal(t, record.Effected, c.outcome(2))
		require.Less(t, b.at(0), 50*time.Millisecond)
		require.Less(t, b.at(1), 50*time.Millisecond)
		require.GreaterOrEqual(t, b.at(2), time.Second)
	})

	bubble(t, "VerbAroundAParkBeatsIt", func(t *testing.T) {
		b := newBench(t)
		c := b.run(t, func(*message.Message) error { return fault.Permanent(fault.Park(errBoom, time.Hour)) }, rec(0, "k"))
		require.Equal(t, record.Dead, c.outcome(0))
		require.Less(t, b.at(0), time.Second, "nobody waits for what is over")
	})

	bubble(t, "OnlyTheFailedKeyWaitsAndItsFollowersStayBehindUntouched", func(t *testing.T) {
		b := newBench(t)
		var ran log[int64]
		failed := false
		b.run(t, func(m *message.Message) error {
			ran.add(offsetOf(m))
			if offsetOf(m) == 0 && !failed {
				failed = true
				return fault.RetryAfter(errBoom, time.Second)
			}
			return nil
		}, rec(0, "a"), rec(1, "b"), rec(2, "a"), rec(3, ""))
		require.Equal(t, []int64{0, 1, 3, 0, 2}, ran.get())
		require.Zero(t, b.at(1))
		require.Zero(t, b.at(3))
		require.GreaterOrEqual(t, b.at(2), time.Second)
	})

	bubble(t, "ByPartitionNothingPassesAFailure", func(t *testing.T) {
		b := newBench(t)
		var ran log[int64]
		failed := false
		c := b.claim(t, 2, 500, b.handler(t, func(m *message.Message) error {
			ran.add(offsetOf(m))
			if offsetOf(m) == 1 && !failed {
				failed = true
				return fault.RetryAfter(errBoom, time.Second)
			}
			return nil
		}))
		c.byPart = true
		c.add(recs(4, ownKey)...)
		c.idle()
		require.Equal(t, []int64{0, 1, 1, 2, 3}, ran.get())
	})

	bubble(t, "AttemptsBudgetAndLastErrorAreTheRecords", func(t *testing.T) {
		b := newBench(t)
		b.rt.Repeatable = true
		last := errors.New("the last")
		errs := []error{
			fault.Transient(errBoom), fault.Busy(errBoom), fault.Ambiguous(errBoom), fault.Unavailable(errBoom, "x"), fault.Transient(last),
		}
		ran := 0
		c := b.run(t, func(*message.Message) error { // A, B, A, B: a class has no counter of its own
			ran++
			return errs[min(ran, len(errs))-1]
		}, rec(0, "k"))
		require.Equal(t, record.Dead, c.outcome(0))
		require.Equal(t, 5, ran)
		l := b.topic.of(0)[0]
		require.Equal(t, dlq.Exhausted, l.Reason)
		require.Equal(t, 3, l.Attempts)
		require.ErrorIs(t, l.Err, last)
		require.Less(t, l.FirstFailed, l.LastFailed)
	})

	bubble(t, "NeighboursSuccessDoesNotResetAttempts", func(t *testing.T) {
		b := newBench(t)
		ran := 0
		c := b.claim(t, 2, 500, b.handler(t, func(m *message.Message) error {
			if offsetOf(m) == 0 {
				ran++
				return fault.Transient(errBoom)
			}
			return nil
		}))
		c.add(rec(0, "k"))
		for i := range 50 {
			c.add(rec(int64(i+1), "other"))
			elapse(20 * time.Millisecond)
		}
		c.idle()
		require.Equal(t, 3, ran)
	})

	bubble(t, "AttemptWithoutDeadlineOutlivesTheBudgetAndIsTheLast", func(t *testing.T) {
		b := newBench(t)
		ran := 0
		b.run(t, func(*message.Message) error {
			ran++
			<-time.After(time.Minute) // ignores its context
			return errBoom
		}, rec(0, "k"))
		require.Equal(t, 1, ran)
		require.Equal(t, dlq.Exhausted, b.topic.of(0)[0].Reason)
		require.Equal(t, time.Minute, b.at(0), "it is not slept into a dead budget")
	})

	bubble(t, "EachAttemptHasADeadlineOfItsOwn", func(t *testing.T) {
		b := newBench(t)
		var deadlines log[time.Duration]
		b.run(t, func(m *message.Message) error {
			d, _ := m.Context().Deadline()
			deadlines.add(time.Until(d))
			return fault.Transient(sleep(m.Context(), time.Minute))
		}, rec(0, "k"))
		require.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}, deadlines.get())
		require.Less(t, b.at(0), 16*time.Second)
	})

	bubble(t, "TimeOfFreeAttemptsIsGivenBack", func(t *testing.T) {
		b := newBench(t)
		ran := 0
		c := b.run(t, func(*message.Message) error {
			<-time.After(4 * time.Second)
			switch ran++; {
			case ran <= 20:
				return fault.Unavailable(errBoom, "payments")
			case ran <= 22:
				return fault.Transient(errBoom)
			}
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0), "80s of an outage are no part of a budget of 15.6s")
	})

	bubble(t, "BackOffGivesUpItsLane", func(t *testing.T) {
		b := newBench(t)
		c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
			if offsetOf(m) == 0 && time.Since(b.began) < 10*time.Second {
				return fault.RetryAfter(errBoom, 10*time.Second)
			}
			return nil
		}))
		c.add(rec(0, "a"))
		elapse(time.Second)
		c.add(rec(1, "b"))
		c.idle()
		require.Equal(t, time.Second, b.at(1))
		require.GreaterOrEqual(t, b.at(0), 10*time.Second)
	})

	bubble(t, "BusyIsFreeHoweverLong", func(t *testing.T) {
		b := newBench(t)
		c := b.run(t, func(*message.Message) error {
			if time.Since(b.began) < time.Hour {
				return fault.Busy(errBoom)
			}
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.NotEmpty(t, b.holds.get())
		require.Equal(t, middleware.BusyElsewhere, b.holds.get()[0].Dependency)
	})

	// a service answers 409 for ever -> free, no gate, ready: nobody was told
	bubble(t, "BusyForAMinuteIsToldOnce", func(t *testing.T) {
		b := newBench(t)
		c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
			if offsetOf(m) == 0 || time.Since(b.began) < 40*time.Second {
				return fault.Busy(errBoom)
			}
			return nil
		}))
		c.add(rec(0, "a"), rec(1, "b"))
		elapse(time.Minute)
		require.Empty(t, b.reports.kinds())
		elapse(time.Hour)
		require.Equal(t, record.Effected, c.outcome(1))
		require.Equal(t, []string{record.ReportBusy}, b.reports.kinds())
		r := b.reports.all[0]
		require.Zero(t, r.Offset)
		require.GreaterOrEqual(t, r.Age, time.Minute)
		require.ErrorIs(t, r.Err, errBoom)
		require.Contains(t, r.Hint, "headrace bury")
	})

	bubble(t, "PanicAndGoexitAreTheRecordsFailure", func(t *testing.T) {
		b := newBench(t)
		c := b.run(t, func(m *message.Message) error {
			switch offsetOf(m) {
			case 1:
				panic("boom")
			case 2:
				runtime.Goexit()
			}
			return nil
		}, recs(4, ownKey)...)
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, record.Effected, c.outcome(3))
		for _, o := range []int64{1, 2} {
			require.Equal(t, record.Dead, c.outcome(o))
			require.Equal(t, dlq.Panic, b.topic.of(o)[0].Reason)
			require.Equal(t, 1, b.topic.of(o)[0].Attempts)
		}
	})

	bubble(t, "SkipSettlesAsSkipped", func(t *testing.T) {
		b := newBench(t)
		c := b.run(t, func(*message.Message) error { return fault.Skip("test order") }, rec(0, "k"))
		require.Equal(t, record.Skipped, c.outcome(0))
		require.Zero(t, b.in.effectsOf(0))
	})

	bubble(t, "FollowersRunAfterTheHeadIsDead", func(t *testing.T) {
		b := newBench(t)
		var ran log[int64]
		c := b.run(t, func(m *message.Message) error {
			ran.add(offsetOf(m))
			if offsetOf(m)%2 == 0 {
				return errBoom
			}
			require.Len(t, b.topic.of(offsetOf(m)-1), 1, "not before")
			return nil
		}, recs(10, oneKey)...)
		require.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, ran.get())
		require.Equal(t, record.Dead, c.outcome(8))
		require.Equal(t, record.Effected, c.outcome(9))
	})

	bubble(t, "CommitOfUnknownOutcomeIsOneEffect", func(t *testing.T) {
		b := newBench(t)
		commits := 0
		b.in.commit = func([]*record.Record) error {
			if commits++; commits == 1 {
				return errUnknown
			}
			return nil
		}
		c := b.run(t, func(*message.Message) error { return nil }, recs(3, ownKey)...)
		for o := range int64(3) {
			require.Equal(t, record.Effected, c.outcome(o))
			require.Equal(t, 1, b.in.effectsOf(o))
		}
	})

	bubble(t, "DuplicateIsSettledSo", func(t *testing.T) {
		b := newBench(t)
		b.rt.Identity = append(b.rt.Identity, func(*record.Record) (string, bool, error) { return "one", true, nil })
		ran := 0
		c := b.run(t, func(*message.Message) error { ran++; return nil }, rec(0, "k"))
		c.add(rec(1, "k"))
		c.idle()
		require.Equal(t, record.Duplicate, c.outcome(1))
		require.Equal(t, 1, ran)
	})
}

// TestSuccessStartsNoGoroutine is not parallel: it counts, and parallel tests run when the others are done.
func TestSuccessStartsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		h := b.handler(t, func(*message.Message) error { return nil })
		c := newClaim(1, 500, b.rt.Gates)
		defer c.end(0)
		var most atomic.Int32
		b.in.commit = func([]*record.Record) error {
			most.Store(int32(runtime.NumGoroutine()))
			return nil
		}
		c.add(recs(500, ownKey)...)
		m := c.next()
		before := runtime.NumGoroutine()
		_, err := h(record.NewMessage(c.hard, m.rs))
		require.NoError(t, err)
		synctest.Wait()
		require.LessOrEqual(t, int(most.Load()), before+5, "500 records; the fake inbox has an attempt on its way out")
	})
}
