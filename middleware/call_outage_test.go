package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// service is a dependency that is down for a while, in one of the ways in which they are.
type service struct {
	from, to time.Time
	fails    func(ctx context.Context) error
	took     time.Duration

	mu            sync.Mutex
	before, after int // calls that began before it was down, and since it is back
	failed        int // while it was down
	most, now     int // side by side while it was down
}

func (s *service) do(ctx context.Context, _ *record.Record) (any, error) {
	s.mu.Lock()
	at := time.Now()
	down := !at.Before(s.from) && at.Before(s.to)
	switch {
	case down:
		s.failed++
	case at.Before(s.to):
		s.before++
	default:
		s.after++
	}
	if s.now++; down {
		s.most = max(s.most, s.now)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if err := sleep(ctx, s.took); err != nil {
		return nil, err
	}
	if down {
		return nil, s.fails(ctx)
	}
	return "paid", nil
}

// outages are ways to be down. None of them is a verdict on a record.
var outages = map[string]func(ctx context.Context) error{
	"Refused":     func(context.Context) error { return fault.Transient(errors.New("connection refused")) },
	"Reset":       func(context.Context) error { return fault.Ambiguous(errors.New("connection reset")) },
	"Hangs":       func(ctx context.Context) error { return sleep(ctx, time.Hour) },
	"IgnoresUs":   func(context.Context) error { <-time.After(12 * time.Second); return errors.New("late") },
	"Throttled":   func(context.Context) error { return fault.RetryAfter(errors.New("503"), 2*time.Second) },
	"Credentials": func(context.Context) error { return fault.Unavailable(errors.New("401"), "payments") },
	"LoginPage": func(context.Context) error {
		_, err := downstream.DecodeJSON[string](&http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("<html>"))})
		return err
	},
}

// TestCall_OutageKillsNobody: whatever the order, the rate and the concurrency, an outage dead-letters nothing and all is
// effected when it is over.
func TestCall_OutageKillsNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		partitions int
		records    int
		byPart     bool
		key        func(int) string
		every      time.Duration // between two records of a partition
	}{
		{"OnePartitionOneAtATime", 1, 40, true, ownKey, 0},
		{"OneRecordASecond", 1, 60, true, ownKey, time.Second},
		{"OneRecordEach20s", 1, 10, false, ownKey, 20 * time.Second},
		{"ByKey500InAMessage", 1, 500, false, ownKey, 0},
		{"OneKey", 1, 30, false, oneKey, 0},
		{"EightPartitionsAtALowRate", 8, 10, true, ownKey, 5 * time.Second},
		{"EightPartitionsWithABacklog", 8, 200, false, ownKey, 0},
	} {
		for way, fails := range outages {
			bubble(t, c.name+"/"+way, func(t *testing.T) {
				b := newBench(t)
				b.writers(t, 4)
				s := &service{from: b.began.Add(5 * time.Millisecond), to: b.began.Add(30 * time.Second), fails: fails, took: 10 * time.Millisecond}
				d := b.calls(t, s.do)
				h := b.handler(t, nothing)
				var served sync.WaitGroup
				for p := range c.partitions {
					served.Go(func() {
						cl := b.claim(t, 2, 500, h)
						cl.byPart = c.byPart
						for i := range c.records {
							r := rec(int64(p*1000+i), c.key(i))
							r.Partition = int32(p)
							cl.add(r)
							if c.every > 0 {
								<-time.After(c.every)
							}
						}
						cl.idle()
						for o, is := range cl.outcomes {
							require.Equal(t, []record.Outcome{record.Effected}, is, o)
						}
						require.Len(t, cl.outcomes, c.records)
					})
				}
				served.Wait()
				require.Empty(t, b.topic.letters)
				require.Equal(t, record.BreakerClosed, d.State())
				require.False(t, b.rt.Gates.Shut())
				limit := 30*time.Second + time.Duration(c.records)*c.every + 75*time.Second
				require.Less(t, time.Since(b.began), limit, "it goes on soon after")
				require.LessOrEqual(t, s.after, c.partitions*c.records*12/10, "1.2 calls a record")
			})
		}
	}
}

// TestCall_Backlog: an outage with 100,000 records behind it takes no more memory than twice lanes × MaxBatch records, and
// they are called for once afterwards. Not parallel: it counts the goroutines of the process.
func TestCall_Backlog(t *testing.T) {
	const backlog, lanes, batch = 100_000, 4, 500
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.writers(t, 4)
		down := fault.Transient(errors.New("connection refused"))
		s := &service{
			from: b.began.Add(time.Second), to: b.began.Add(10 * time.Minute), took: 10 * time.Millisecond,
			fails: func(context.Context) error { return down },
		}
		b.calls(t, s.do)
		c := b.claim(t, lanes, batch, b.handler(t, nothing))
		c.add(recs(backlog, ownKey)...)
		goroutines := 0
		for range 9 {
			elapse(time.Minute)
			goroutines = max(goroutines, runtime.NumGoroutine())
		}
		require.LessOrEqual(t, c.maxWaits, 2*lanes*batch+64, "the rest is in line, but for what supplied the probe once all had failed")
		require.Less(t, goroutines, 2*lanes*batch+500)
		const probes = 10 * 60 / 30
		require.LessOrEqual(t, s.most, 64, "side by side")
		require.LessOrEqual(t, s.failed, s.before+64+probes, "what the breaker has to see to open, one flight, and the probes")
		c.idle()
		require.Len(t, c.outcomes, backlog)
		require.Empty(t, b.topic.letters)
		require.LessOrEqual(t, s.after, backlog*12/10)
	})
}

// TestCall_Probes: whatever becomes of a probe, the next one starts, and soon.
func TestCall_Probes(t *testing.T) {
	t.Parallel()
	const openFor, grace = 30 * time.Second, 15 * time.Second
	for name, probe := range map[string]func(ctx context.Context, revoke func()) error{
		"Fails":             func(context.Context, func()) error { return fault.Transient(errBoom) },
		"IgnoresItsContext": func(context.Context, func()) error { <-time.After(time.Hour); return errBoom },
		"Hangs":             func(ctx context.Context, _ func()) error { return sleep(ctx, time.Hour) },
		"Panics":            func(context.Context, func()) error { panic("boom") },
		"Goexits":           func(context.Context, func()) error { runtime.Goexit(); return nil },
		"Skips":             func(context.Context, func()) error { return fault.Skip("not ours") },
		"IsRevoked":         func(ctx context.Context, revoke func()) error { revoke(); return sleep(ctx, time.Hour) },
	} {
		bubble(t, name, func(t *testing.T) {
			b := newBench(t)
			b.writers(t, 2)
			var probes log[time.Time]
			var first, second *claim
			var h func(ctx context.Context) error
			fails, probed := true, false
			var mu sync.Mutex
			d := b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
				mu.Lock()
				p := time.Since(b.began) >= openFor-time.Second
				if p {
					probes.add(time.Now())
				}
				now := p && !probed
				probed = probed || p
				bad := fails
				mu.Unlock()
				switch {
				case now:
					return nil, h(ctx)
				case bad && !p:
					return nil, fault.Transient(errBoom)
				}
				return "paid", nil
			}, func(c *downstream.Config) { c.Breaker.MinRequests = 4 })
			h = func(ctx context.Context) error { return probe(ctx, func() { go first.end(0) }) }
			handler := b.handler(t, nothing)
			first = b.claim(t, 2, 10, handler)
			first.add(recs(6, ownKey)...)
			elapse(10 * time.Second)
			require.Equal(t, record.BreakerOpen, d.State())
			if name == "IsRevoked" {
				elapse(openFor)
				second = b.claim(t, 2, 10, handler)
				second.add(recs(6, ownKey)...)
				second.idle()
			} else {
				first.idle()
			}
			at := probes.get()
			require.GreaterOrEqual(t, len(at), 2)
			require.LessOrEqual(t, at[1].Sub(at[0]), openFor+grace+2*time.Second, "a second of it is the line's")
			if name == "Panics" || name == "Goexits" {
				require.Len(t, b.topic.letters, 1, "its own failure")
			} else {
				require.Empty(t, b.topic.letters)
			}
			elapse(time.Hour)
			require.False(t, b.rt.Gates.Shut())
		})
	}

	bubble(t, "AllWaitersRevokedAndTheNextClaimProbes", func(t *testing.T) {
		b := newBench(t)
		s := &service{from: b.began, to: b.began.Add(time.Minute), fails: outages["Refused"]}
		b.calls(t, s.do, func(c *downstream.Config) { c.Breaker.MinRequests = 4 })
		h := b.handler(t, nothing)
		first := b.claim(t, 1, 10, h)
		first.add(recs(8, ownKey)...)
		elapse(20 * time.Second)
		first.end(0)
		elapse(50 * time.Second)
		require.False(t, b.rt.Gates.Shut(), "the line must supply the probe")
		next := b.claim(t, 1, 10, h)
		began := time.Now()
		next.add(recs(8, ownKey)...)
		next.idle()
		require.Less(t, time.Since(began), 5*time.Second)
		require.Len(t, next.outcomes, 8)
	})

	bubble(t, "OneAtATimeAndTheHeadAlone", func(t *testing.T) {
		b := newBench(t)
		var now, most, calls atomic.Int32
		var order log[int64]
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if time.Since(b.began) < 5*time.Second {
				return nil, fault.Transient(errBoom)
			}
			calls.Add(1)
			order.add(r.Offset)
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			if err := sleep(ctx, time.Second); err != nil {
				return nil, err
			}
			if time.Since(b.began) < 5*time.Minute {
				return nil, fault.Transient(errBoom)
			}
			return "paid", nil
		}, func(c *downstream.Config) { c.Breaker.MinRequests = 4 })
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(rec(0, "a"), rec(1, "a"), rec(2, "b"), rec(3, "c"), rec(4, "d"), rec(5, "d"))
		elapse(4 * time.Minute)
		require.Equal(t, int32(1), most.Load())
		require.InDelta(t, 7, calls.Load(), 2, "each half minute")
		require.Subset(t, []int64{0, 2, 3, 4}, order.get(), "heads of their keys")
		c.idle()
		require.Len(t, c.outcomes, 6)
	})
}

func TestCall_Corroboration(t *testing.T) {
	t.Parallel()

	bubble(t, "RecordThatAlwaysFailsAloneIsReportedOnceAndNotDead", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, func(context.Context, *record.Record) (any, error) { return nil, fault.Transient(errBoom) },
			func(c *downstream.Config) { c.Breaker.MinRequests = 1000 })
		c := b.claim(t, 1, 10, b.handler(t, nothing))
		c.add(rec(7, "k"), rec(8, "k"))
		elapse(10 * time.Second)
		require.Empty(t, b.reports.kinds())
		elapse(time.Hour)
		require.Empty(t, c.outcomes)
		require.Equal(t, []string{record.ReportNotCorroborated}, b.reports.kinds())
		r := b.reports.all[0]
		require.Equal(t, int64(7), r.Offset)
		require.InDelta(t, 15*time.Second, r.Age, float64(5*time.Second))
		require.Equal(t, errBoom.Error(), r.Err.Error())
		require.Regexp(t, `^payments has failed \d calls for the record within 1\ds, and answered nobody else meanwhile\. `, r.Hint)
		require.Contains(t, r.Hint, "headrace bury ")
	})

	bubble(t, "OnceSomebodyIsAnsweredItIsChargedAndDead", func(t *testing.T) {
		b := newBench(t)
		var calls atomic.Int32
		b.calls(t, func(ctx context.Context, r *record.Record) (any, error) {
			if string(r.Key) == "bad" {
				calls.Add(1)
				_ = sleep(ctx, 100*time.Millisecond)
				return nil, fault.Transient(errBoom)
			}
			return "paid", nil
		})
		c := b.claim(t, 2, 10, b.handler(t, nothing))
		c.add(rec(0, "bad"))
		elapse(30 * time.Second)
		require.Empty(t, c.outcomes)
		require.Less(t, calls.Load(), int32(15), "at intervals of up to the cap")
		for i := range 1000 {
			c.add(rec(int64(1+i), "good"))
			elapse(50 * time.Millisecond)
		}
		c.idle()
		require.Equal(t, record.Dead, c.outcome(0))
		l := b.topic.of(0)[0]
		require.Equal(t, dlq.Exhausted, l.Reason)
		require.Equal(t, 3, l.Attempts)
		require.Len(t, b.topic.letters, 1)
	})

	bubble(t, "OutageThatTheBreakerDoesNotSeeStopsTheRouteToo", func(t *testing.T) {
		b := newBench(t)
		s := &service{from: b.began.Add(time.Second), to: b.began.Add(5 * time.Minute), fails: outages["Refused"], took: time.Millisecond}
		d := b.calls(t, s.do, func(c *downstream.Config) {
			c.MaxConcurrent = 2
			c.Breaker = downstream.BreakerConfig{MinRequests: 5, FailureRatio: 1, Window: time.Hour}
		})
		c := b.claim(t, 2, 3, b.handler(t, nothing))
		c.add(rec(1000, "first")) // after this one not everything has failed
		elapse(2 * time.Second)
		c.add(recs(200, ownKey)...)
		elapse(2 * time.Minute)
		require.Equal(t, record.BreakerClosed, d.State())
		require.True(t, b.rt.Gates.Shut())
		require.Contains(t, b.rt.Gates.Down(), "payments")
		c.mu.Lock()
		inFlight := c.inFlight()
		c.mu.Unlock()
		require.LessOrEqual(t, inFlight, 2*5+2*3, "twice what a breaker must see, and what was under way")
		c.idle()
		require.Len(t, c.outcomes, 201)
		require.Empty(t, b.topic.letters)
		require.False(t, b.rt.Gates.Shut())
		require.Empty(t, b.rt.Gates.Down())
	})

	bubble(t, "FreeFailuresSpendNoBudget", func(t *testing.T) {
		b := newBench(t)
		s := &service{from: b.began, to: b.began.Add(10 * time.Minute), fails: outages["Hangs"]}
		b.calls(t, s.do, func(c *downstream.Config) { c.Breaker.MinRequests = 1000 })
		applies := 0
		c := b.run(t, func(*message.Message) error {
			if applies++; applies < 3 {
				return fault.Transient(errBoom) // it has its attempts, and its budget
			}
			return nil
		}, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, 3, applies)
	})
}

func TestCall_RetryAfter(t *testing.T) {
	t.Parallel()

	bubble(t, "BeyondTheBudgetHoldsAndPausesTheRoute", func(t *testing.T) {
		b := newBench(t)
		var at log[time.Duration]
		b.calls(t, func(context.Context, *record.Record) (any, error) {
			at.add(time.Since(b.began))
			if len(at.get()) == 1 {
				return nil, fault.RetryAfter(errBoom, 5*time.Minute)
			}
			return "paid", nil
		})
		c := b.claim(t, 1, 1, b.handler(t, nothing))
		c.add(recs(3, ownKey)...)
		elapse(4 * time.Minute)
		require.Len(t, at.get(), 1, "nobody asks in between")
		require.Contains(t, b.rt.Gates.Down(), middleware.RetryAfter)
		c.idle()
		require.GreaterOrEqual(t, at.get()[1], 5*time.Minute)
		require.Len(t, c.outcomes, 3)
	})

	bubble(t, "WithinTheBudgetIsAFloor", func(t *testing.T) {
		b := newBench(t)
		var at log[time.Duration]
		b.calls(t, func(context.Context, *record.Record) (any, error) {
			at.add(time.Since(b.began))
			if len(at.get()) <= 5 {
				return nil, fault.RetryAfter(errBoom, 3*time.Second)
			}
			return "paid", nil
		})
		c := b.run(t, nothing, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0), "none was corroborated")
		for i := 1; i < 6; i++ {
			require.GreaterOrEqual(t, at.get()[i]-at.get()[i-1], 3*time.Second)
		}
	})

	bubble(t, "OfAYearIsAskedAgainEachMaxHold", func(t *testing.T) {
		b := newBench(t)
		calls := 0
		b.calls(t, func(context.Context, *record.Record) (any, error) {
			if calls++; calls < 8 {
				return nil, fault.RetryAfter(errBoom, year)
			}
			return "paid", nil
		})
		c := b.run(t, nothing, rec(0, "k"))
		require.Equal(t, record.Effected, c.outcome(0))
		require.Equal(t, 7*15*time.Minute, time.Since(b.began).Truncate(time.Minute))
	})
}

// TestCall_RefusalsOfOthersDoNotSpin: a call that is refused by something that no gate follows does not spin.
func TestCall_RefusalsOfOthersDoNotSpin(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{fault.ErrBulkheadFull, fault.ErrNoRetryTokens, fault.ErrBreakerOpen} {
		bubble(t, fmt.Sprint(reason), func(t *testing.T) {
			b := newBench(t)
			calls := 0
			b.calls(t, func(context.Context, *record.Record) (any, error) {
				if calls++; time.Since(b.began) < time.Minute {
					return nil, &fault.RefusedError{Dependency: "payments", Reason: reason}
				}
				return "paid", nil
			})
			c := b.run(t, nothing, rec(0, "k"))
			require.Equal(t, record.Effected, c.outcome(0))
			require.Less(t, calls, 30)
		})
	}
}

func TestCall_ApplySaysThatTheDependencyIsDown(t *testing.T) {
	t.Parallel()
	bubble(t, "AndHoldsItsRecordAlone", func(t *testing.T) {
		b := newBench(t)
		b.calls(t, paid)
		ran := 0
		h := b.handler(t, func(m *message.Message) error {
			if offsetOf(m) == 0 && time.Since(b.began) < 10*time.Minute {
				ran++
				return fault.Unavailable(errBoom, "payments")
			}
			return nil
		})
		c := b.claim(t, 1, 10, h)
		c.add(rec(0, "a"))
		elapse(time.Minute)
		require.False(t, b.rt.Gates.Shut())
		c.add(rec(1, "b"))
		elapse(time.Second)
		require.Equal(t, record.Effected, c.outcome(1))
		c.idle()
		require.Equal(t, record.Effected, c.outcome(0))
		require.Less(t, ran, 200, "it does not spin")
		require.Empty(t, b.rt.Gates.Down())
	})
}
