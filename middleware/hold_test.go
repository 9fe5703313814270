package middleware_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

const year = 365 * 24 * time.Hour

func TestHold(t *testing.T) {
	t.Parallel()

	bubble(t, "DatabaseAwayForLongSpendsNoAttempt", func(t *testing.T) {
		b := newBench(t)
		commits := 0
		b.in.commit = func([]*record.Record) error {
			if commits++; time.Since(b.began) < 20*time.Minute {
				return errBoom
			}
			return nil
		}
		failures := 0
		c := b.run(t, func(m *message.Message) error {
			if offsetOf(m) == 7 && time.Since(b.began) > 20*time.Minute && failures < 2 {
				failures++ // it still has its three attempts, and its budget
				return fault.Transient(errBoom)
			}
			return nil
		}, recs(200, ownKey)...)
		for o := range int64(200) {
			require.Equal(t, record.Effected, c.outcome(o))
		}
		require.Equal(t, 2, failures)
		require.Less(t, commits, 2*1200/5+200, "one probe each five seconds or less often than twice that")
		require.Less(t, b.at(0), 20*time.Minute+10*time.Second)
		require.LessOrEqual(t, c.maxWaits, 200)
		first := b.holds.get()[0]
		require.True(t, first.Began)
		require.Equal(t, fault.Database, first.Dependency)
	})

	bubble(t, "GoesOnIsSaidBetweenTwoTriesThatFail", func(t *testing.T) {
		b := newBench(t)
		var holds log[record.HoldInfo]
		b.rt.Hooks.OnHold = holds.add
		c := b.run(t, func(*message.Message) error {
			if time.Since(b.began) < time.Minute {
				return fault.Unavailable(errBoom, "shipping")
			}
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		synctest.Wait() // the record is settled before its hold is over
		require.Len(t, holds.get(), 2, "one that begins, and ends")
		require.True(t, holds.get()[1].Done)
		require.GreaterOrEqual(t, holds.get()[1].Took, time.Minute)
	})

	bubble(t, "BacklogStaysInLineWhileTheGateIsShut", func(t *testing.T) {
		b := newBench(t)
		var inside, most atomic.Int32
		b.in.commit = func([]*record.Record) error {
			if time.Since(b.began) < time.Minute {
				return errBoom
			}
			return nil
		}
		b.rt.Hooks.OnHold = func(i record.HoldInfo) {
			n := int32(i.Records)
			if !i.Began {
				n = -n
			}
			if held := inside.Add(n); held > most.Load() {
				most.Store(held)
			}
		}
		h := b.handler(t, func(*message.Message) error { return nil })
		c := b.claim(t, 4, 50, h)
		c.add(recs(3000, ownKey)...)
		c.idle()
		require.LessOrEqual(t, most.Load(), int32(200+50), "lanes × MaxBatch, of 3,000, and one message that becomes chains")
		require.Zero(t, inside.Load())
	})

	bubble(t, "AllWaitersRevokedAndTheNextClaimProbes", func(t *testing.T) {
		b := newBench(t)
		up := false
		h := b.handler(t, func(*message.Message) error {
			if !up {
				return fault.Unavailable(errBoom, "payments")
			}
			return nil
		})
		c := b.claim(t, 1, 10, h)
		c.add(recs(5, ownKey)...)
		elapse(time.Minute)
		c.end(0)
		up = true
		next := b.claim(t, 1, 10, h)
		began := time.Now()
		next.add(recs(5, ownKey)...)
		next.idle()
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		synctest.Wait()
		require.False(t, b.rt.Gates.Shut())
	})

	bubble(t, "StopEndsEveryWaitAtOnce", func(t *testing.T) {
		full := func(*record.Record) error { return fault.Busy(errBoom) }
		for _, c := range []struct {
			name string
			err  error
			set  func(b *bench)
		}{
			{"back-off", fault.RetryAfter(errBoom, 10*time.Second), nil},
			{"hold at a gate", fault.Unavailable(errBoom, "payments"), nil},
			{"retry-after", fault.RetryAfter(errBoom, time.Hour), nil},
			{"busy", fault.Busy(errBoom), nil},
			{"postponed", fault.Park(errBoom, time.Hour), nil},
			{"dead letter topic away", errBoom, func(b *bench) {
				b.topic.write = func(context.Context, dlq.Letter) error { return errBoom }
			}},
			{"letter too large", errBoom, func(b *bench) {
				b.topic.write = func(context.Context, dlq.Letter) error { return dlq.ErrTooLarge }
			}},
			{"verdict locked", errBoom, func(b *bench) { b.in.bury = full }},
			{"flood", errBoom, func(b *bench) {
				b.rt.Flood = middleware.NewFloodGuard(middleware.FloodConfig{Run: 1})
				_, _ = b.rt.Flood.Admit(middleware.Partition{Topic: "orders"})
			}},
		} {
			b := newBench(t)
			if c.set != nil {
				c.set(b)
			}
			cl := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { return c.err }))
			cl.add(recs(3, oneKey)...)
			elapse(5 * time.Second)
			began := time.Now()
			cl.end(time.Minute)
			require.Zero(t, time.Since(began), c.name)
			require.Empty(t, cl.outcomes, c.name)
			require.Equal(t, 3, cl.givenBack, c.name)
		}
	})

	bubble(t, "RetryAfterOfAYearIsHeldNoLongerThanMaxHoldAndNeverDead", func(t *testing.T) {
		b := newBench(t)
		var ran log[time.Duration]
		c := b.claim(t, 1, 1, b.handler(t, func(*message.Message) error {
			if ran.add(time.Since(b.began)); len(ran.get()) < 10 {
				return fault.RetryAfter(errBoom, year)
			}
			return nil
		}))
		c.add(rec(0, "a"), rec(1, "b"))
		c.idle()
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, record.Effected, c.outcome(1))
		require.Len(t, ran.get(), 11, "the route pauses: the other one does not ask in between")
		for i := 1; i < 10; i++ {
			require.Equal(t, 15*time.Minute, ran.get()[i]-ran.get()[i-1])
		}
	})

	bubble(t, "NegativeRetryAfterIsIgnored", func(t *testing.T) {
		b := newBench(t)
		ran := 0
		b.run(t, func(*message.Message) error { ran++; return fault.RetryAfter(errBoom, -time.Hour) }, rec(0, "k"))
		require.Equal(t, 3, ran)
		require.Less(t, b.at(0), time.Second)
	})

	bubble(t, "HungProbeEndsAndTheNextOneStarts", func(t *testing.T) {
		b := newBench(t)
		b.writers(t, 2)
		b.in.timeout = time.Hour // a handler whose deadline does nothing
		var probes atomic.Int32
		c := b.claim(t, 2, 1, b.handler(t, func(m *message.Message) error {
			switch probes.Add(1) {
			case 1:
				return fault.Unavailable(errBoom, "payments")
			case 2:
				return sleep(m.Context(), 10*time.Minute)
			}
			return nil
		}))
		c.add(rec(0, "a"))
		synctest.Wait()
		c.add(rec(1, "b"))
		elapse(time.Minute)
		require.Equal(t, record.Effected, c.outcome(1), "within the probe's time and a back-off")
		c.idle()
	})

	bubble(t, "RouteThatWasStoppedHoldsAndKillsNobody", func(t *testing.T) {
		b := newBench(t)
		h := b.handler(t, func(*message.Message) error { return fault.Permanent(dedup.ErrRouteStopped) })
		c := b.claim(t, 1, 10, h)
		c.add(recs(20, ownKey)...)
		elapse(time.Hour)
		require.Empty(t, c.outcomes)
		require.True(t, b.rt.Gates.Shut())
		require.Contains(t, b.rt.Gates.Down(), middleware.RouteStopped)
	})
}

func TestShutdown(t *testing.T) {
	t.Parallel()

	bubble(t, "WhatFinishesInTheGraceIsSettledAndWhatFailsIsGivenBack", func(t *testing.T) {
		b := newBench(t)
		c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
			if err := sleep(m.Context(), time.Second); err != nil {
				return err
			}
			if offsetOf(m) == 1 {
				return errBoom // something that shuts down may fail in any way
			}
			return nil
		}))
		c.add(recs(2, ownKey)...)
		synctest.Wait()
		c.end(10 * time.Second)
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, record.Unsettled, c.outcome(1))
		require.Empty(t, b.topic.of(1))
	})

	bubble(t, "HandlerThatIsCutOffIsNeitherDeadNorAcknowledged", func(t *testing.T) {
		b := newBench(t)
		var cause log[error]
		c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
			err := sleep(m.Context(), time.Minute)
			cause.add(err)
			return err
		}))
		b.in.timeout = time.Hour
		c.add(rec(0, "k"))
		synctest.Wait()
		c.end(time.Second)
		synctest.Wait()
		require.ErrorIs(t, cause.get()[0], record.ErrRevoked)
		require.Empty(t, c.outcomes)
		require.Empty(t, b.topic.of(0))
	})

	bubble(t, "EffectThatComesTooLateToSettleIsNotReportedAsLost", func(t *testing.T) {
		b := newBench(t)
		b.in.commit = func([]*record.Record) error { <-time.After(2 * time.Second); return nil }
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(rec(0, "k"))
		synctest.Wait()
		c.end(time.Second)
		elapse(time.Minute)
		require.Empty(t, c.outcomes)
		require.Equal(t, 1, b.in.effectsOf(0))
		require.Empty(t, b.reports.kinds())
	})

	bubble(t, "VerdictIsCarriedOutUnderAContextOfItsOwn", func(t *testing.T) {
		b := newBench(t)
		writing := make(chan struct{})
		b.topic.write = func(ctx context.Context, _ dlq.Letter) error {
			close(writing)
			return sleep(ctx, 5*time.Second)
		}
		c := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { return errBoom }))
		c.add(rec(0, "k"))
		<-writing
		c.end(time.Second) // the record's context is cancelled in the middle of the produce
		elapse(5 * time.Second)
		require.Len(t, b.topic.of(0), 1)
		require.Empty(t, c.outcomes, "too late to settle")

		next := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { return nil }))
		b.topic.write = func(context.Context, dlq.Letter) error { return nil }
		next.add(rec(0, "k"))
		next.idle()
		require.Equal(t, record.Dead, next.outcome(0), "and never run, although it would succeed now")
		require.Len(t, b.topic.of(0), 2)
	})
}

func TestDeadLetter(t *testing.T) {
	t.Parallel()

	bubble(t, "TopicAwayHoldsAndTheHandlerIsNotRunAgain", func(t *testing.T) {
		b := newBench(t)
		writes, ran := 0, 0
		b.topic.write = func(context.Context, dlq.Letter) error {
			if writes++; time.Since(b.began) < time.Hour {
				return errors.New("broker gone")
			}
			return nil
		}
		c := b.run(t, func(*message.Message) error { ran++; return errBoom }, rec(0, "k"))
		require.Equal(t, record.Dead, c.outcome(0))
		require.Equal(t, 1, ran)
		require.Less(t, writes, 2*3600/5+20)
		require.Less(t, b.at(0), time.Hour+10*time.Second)
		require.Equal(t, 1, b.topic.of(0)[0].Attempts)
		require.Equal(t, []string{"dead_letter_not_written"}, b.reports.kinds(), "told once")
		require.Equal(t, fault.DeadLetterTopic, b.holds.get()[0].Dependency)
	})

	bubble(t, "OneRecordWhoseTopicIsMissingStopsNobodyElse", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(context.Context, dlq.Letter) error {
			if time.Since(b.began) < time.Hour {
				return errBoom
			}
			return nil
		}
		c := b.claim(t, 1, 10, b.handler(t, func(m *message.Message) error {
			if offsetOf(m) == 0 {
				return errBoom
			}
			return nil
		}))
		c.add(recs(20, ownKey)...)
		elapse(time.Minute)
		c.add(rec(20, "late"))
		elapse(time.Second)
		require.Equal(t, record.Effected, c.outcome(20))
		require.Equal(t, record.Unsettled, c.outcome(0))
		require.False(t, b.rt.Gates.Shut())
		require.Contains(t, b.rt.Gates.Down(), fault.DeadLetterTopic, "readiness says so")
		c.idle()
		require.Equal(t, record.Dead, c.outcome(0))
		require.NotContains(t, b.rt.Gates.Down(), fault.DeadLetterTopic)
	})

	bubble(t, "AllThatDieWhileTheTopicIsMissingStayInLineButAThousand", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(context.Context, dlq.Letter) error {
			if time.Since(b.began) < time.Hour {
				return errBoom
			}
			return nil
		}
		ran := 0
		c := b.claim(t, 1, 100, b.handler(t, func(*message.Message) error { ran++; return errBoom }))
		c.add(recs(3000, ownKey)...)
		elapse(time.Minute)
		require.True(t, b.rt.Gates.Shut())
		require.LessOrEqual(t, ran, 1000+100)
		c.idle()
		for o := range int64(3000) {
			require.Equal(t, record.Dead, c.outcome(o))
		}
	})

	bubble(t, "AThousandLettersThatAreTooLargeStopTheRouteAndReadinessSaysSo", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(context.Context, dlq.Letter) error {
			if time.Since(b.began) < time.Hour {
				return dlq.ErrTooLarge
			}
			return nil
		}
		c := b.claim(t, 1, 100, b.handler(t, func(*message.Message) error { return errBoom }))
		c.add(recs(3000, ownKey)...)
		elapse(time.Minute)
		require.True(t, b.rt.Gates.Shut())
		require.Contains(t, b.rt.Gates.Down(), fault.DeadLetterTopic)
		c.idle()
		require.NotContains(t, b.rt.Gates.Down(), fault.DeadLetterTopic)
	})

	bubble(t, "NothingSeemsToHoldWhileATryRuns", func(t *testing.T) {
		b := newBench(t)
		var holding atomic.Int32
		b.rt.Hooks.OnHold = func(i record.HoldInfo) {
			if i.Began {
				holding.Add(1)
			} else {
				holding.Add(-1)
			}
		}
		var seen log[int32]
		b.topic.write = func(context.Context, dlq.Letter) error {
			seen.add(holding.Load())
			if time.Since(b.began) < time.Minute {
				return errBoom
			}
			return nil
		}
		b.run(t, func(*message.Message) error { return errBoom }, rec(0, "k"))
		require.Zero(t, seen.get()[0])
		for _, n := range seen.get()[1:] {
			require.EqualValues(t, 1, n, "in every try after the first failure")
		}
		require.Zero(t, holding.Load())
	})

	bubble(t, "FewDeadOfAMessageDoNotHoldUpTheNext", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(ctx context.Context, _ dlq.Letter) error { return sleep(ctx, 5*time.Second) }
		fails := func(m *message.Message) error {
			if record.Of(m.Context()).Offset == 3 {
				return errBoom
			}
			return nil
		}
		c := b.claim(t, 1, 20, b.handler(t, fails))
		c.add(recs(40, ownKey)...)
		elapse(time.Second) // the letter is on its way
		require.Equal(t, record.Unsettled, c.outcome(3))
		require.Equal(t, record.Effected, c.outcome(39), "there is one lane")
		c.idle()
		require.Equal(t, record.Dead, c.outcome(3))
	})

	bubble(t, "MessageOfFailuresKeepsItsLane", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(ctx context.Context, _ dlq.Letter) error { return sleep(ctx, 5*time.Second) }
		c := b.claim(t, 1, 20, b.handler(t, func(*message.Message) error { return errBoom }))
		c.add(recs(40, ownKey)...)
		elapse(time.Second)
		require.Equal(t, record.Unsettled, c.outcome(0))
		require.Empty(t, b.topic.of(39))
		elapse(20 * time.Second)
		c.idle()
		require.Equal(t, record.Dead, c.outcome(39))
	})

	bubble(t, "OneThatIsTooLargeHoldsNobodyElse", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(_ context.Context, l dlq.Letter) error {
			if l.Record.Offset == 0 && time.Since(b.began) < time.Hour {
				return fault.Unavailable(dlq.ErrTooLarge, fault.DeadLetterTopic)
			}
			return nil
		}
		c := b.run(t, func(*message.Message) error { return errBoom }, recs(3, ownKey)...)
		require.Equal(t, record.Dead, c.outcome(0))
		require.Less(t, b.at(1), time.Second)
		require.Less(t, b.at(2), time.Second)
	})

	bubble(t, "LostReplyIsAtMostASecondCopy", func(t *testing.T) {
		b := newBench(t)
		writes := 0
		b.topic.write = func(context.Context, dlq.Letter) error {
			if writes++; writes == 1 {
				return errUnknown
			}
			return nil
		}
		c := b.run(t, func(*message.Message) error { return errBoom }, rec(0, "k"))
		require.Equal(t, record.Dead, c.outcome(0))
		require.Len(t, b.topic.of(0), 2)
	})

	bubble(t, "VerdictStandsInTheInboxBeforeTheLetter", func(t *testing.T) {
		b := newBench(t)
		b.topic.write = func(_ context.Context, l dlq.Letter) error {
			b.in.mu.Lock()
			defer b.in.mu.Unlock()
			require.Equal(t, record.Dead, b.in.rows[l.Record.Identity.Key].outcome)
			return nil
		}
		b.run(t, func(*message.Message) error { return errBoom }, rec(0, "k"))
		require.Len(t, b.topic.of(0), 1)
	})

	for reason, err := range map[dlq.Reason]error{
		dlq.Permanent: errBoom, dlq.Exhausted: fault.Transient(errBoom), dlq.UnknownOutcome: fault.Ambiguous(errBoom), dlq.Panic: nil,
	} {
		bubble(t, "LetterAfterACrashSaysWhatTheVerdictSaid/"+string(reason), func(t *testing.T) {
			b := newBench(t)
			ran := 0
			h := b.handler(t, func(*message.Message) error {
				if ran++; err == nil {
					panic(errBoom)
				}
				return err
			})
			var lost []dlq.Letter
			b.topic.write = func(_ context.Context, l dlq.Letter) error { lost = append(lost, l); return errBoom }
			c := b.claim(t, 1, 10, h)
			c.add(rec(0, "k"))
			elapse(time.Minute)
			c.end(0) // the verdict is committed, and no letter confirmed
			require.Empty(t, c.outcomes)

			b.topic.write = func(context.Context, dlq.Letter) error { return nil }
			before, next := ran, b.claim(t, 1, 10, h)
			next.add(rec(0, "k"))
			next.idle()
			require.Equal(t, before, ran, "a dead record never runs")
			require.Equal(t, record.Dead, next.outcome(0))
			letter := b.topic.of(0)[0]
			require.Equal(t, reason, letter.Reason)
			require.Equal(t, lost[0].Reason, letter.Reason)
			require.Equal(t, lost[0].Class, letter.Class)
			require.Equal(t, dlq.Message(lost[0].Err), dlq.Message(letter.Err))
		})
	}

	bubble(t, "RecordThatWasEffectedAfterAllGetsNone", func(t *testing.T) {
		b := newBench(t)
		b.in.bury = func(r *record.Record) error { // its own COMMIT, whose outcome was unknown
			b.in.rows[r.Identity.Key] = row{outcome: record.Effected, coordinates: r.Identity.Coordinates}
			return nil
		}
		c := b.run(t, func(*message.Message) error { return errBoom }, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Empty(t, b.topic.of(0))
	})

	bubble(t, "InboxThatGivesTheVerdictGoesStraightToTheLetter", func(t *testing.T) {
		for err, reason := range map[error]dlq.Reason{dedup.ErrConflict: dlq.IDConflict, dedup.ErrCrashLoop: dlq.CrashLoop} {
			b := newBench(t)
			ran := 0
			c := b.run(t, func(*message.Message) error { ran++; return err }, rec(0, "k"))
			require.Equal(t, record.Dead, c.outcome(0))
			require.Equal(t, reason, b.topic.of(0)[0].Reason)
			require.Zero(t, b.topic.of(0)[0].Attempts)
			require.Equal(t, 1, ran)
		}
	})

	for _, n := range []int{1, 2, 10, 500} {
		for name, key := range map[string]func(int) string{"OneKey": oneKey, "OwnKeys": ownKey, "NoKeys": noKey} {
			bubble(t, "PoisonInARowDrains/"+name+"/"+strconv.Itoa(n), func(t *testing.T) {
				b := newBench(t)
				c := b.run(t, func(*message.Message) error { return errBoom }, recs(n, key)...)
				for o := range int64(n) {
					require.Equal(t, record.Dead, c.outcome(o))
					require.Len(t, b.topic.of(o), 1)
				}
			})
		}
	}

	bubble(t, "FloodIsRefusedHeldAndJudgedAgain", func(t *testing.T) {
		b := newBench(t)
		b.rt.Flood = middleware.NewFloodGuard(middleware.FloodConfig{Run: 5})
		bad, ran := true, 0
		c := b.claim(t, 1, 500, b.handler(t, func(*message.Message) error {
			if ran++; bad {
				return errBoom
			}
			return nil
		}))
		c.add(recs(20, ownKey)...)
		elapse(5 * time.Minute)
		p := middleware.Partition{Topic: "orders"}
		require.Len(t, c.outcomes, 5)
		require.Contains(t, b.rt.Flood.Refusing(), p)
		require.Equal(t, []string{"flood_guard"}, b.reports.kinds(), "told once")
		require.LessOrEqual(t, ran, 20+20, "one probe each 30s, or twice that")
		bad = false // the deploy was rolled forward
		c.idle()
		for o, is := range c.outcomes {
			require.Len(t, is, 1)
			if len(b.topic.of(o)) == 0 {
				require.Equal(t, record.Effected, is[0])
			}
		}
		require.Empty(t, b.rt.Flood.Refusing())
		require.Len(t, b.in.effects, 15, "what was refused is not dead")
	})

	bubble(t, "OperatorLetsAFloodThrough", func(t *testing.T) {
		b := newBench(t)
		b.rt.Flood = middleware.NewFloodGuard(middleware.FloodConfig{Run: 5})
		c := b.claim(t, 1, 500, b.handler(t, func(*message.Message) error { return errBoom }))
		c.add(recs(10, ownKey)...)
		elapse(time.Second)
		require.Len(t, c.outcomes, 5)
		b.rt.Flood.Release(middleware.Partition{Topic: "orders"})
		elapse(time.Second)
		require.Len(t, c.outcomes, 10)
		for _, l := range b.topic.letters {
			require.Equal(t, 1, l[0].Attempts, "running it again to see was free")
		}
	})
}
