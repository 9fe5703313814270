package middleware_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// shop is a service that answers everybody but a few records, which fail always and by its fault, as far as a status
// says. With down it fails everybody.
type shop struct {
	bad     map[int64]bool
	latency time.Duration // the longest; a call takes a random part of it
	takes   time.Duration // what a bad one's takes besides
	down    func() bool

	mu     sync.Mutex
	rnd    *rand.Rand
	opened int // times that the breaker did
}

func newShop(seed uint64, latency time.Duration, bad ...int64) *shop {
	s := &shop{bad: map[int64]bool{}, latency: latency, rnd: rand.New(rand.NewPCG(seed, 1)), down: func() bool { return false }}
	for _, o := range bad {
		s.bad[o] = true
	}
	return s
}

// of gives b's route the shop as its dependency, with all defaults.
func (s *shop) of(t *testing.T, b *bench, change ...func(*downstream.Config)) *downstream.Dependency {
	t.Helper()
	b.writers(t, 2)
	d := b.calls(t, s.do, change...)
	d.Observe(&record.Hooks{OnBreaker: func(i record.BreakerInfo) {
		if i.From == record.BreakerClosed {
			s.mu.Lock()
			s.opened++
			s.mu.Unlock()
		}
	}})
	return d
}

func (s *shop) part(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rnd.Float64() * float64(d))
}

func (s *shop) do(ctx context.Context, r *record.Record) (any, error) {
	if d := s.part(s.latency); d > 0 {
		if err := sleep(ctx, d); err != nil {
			return nil, err
		}
	}
	if s.bad[r.Offset] && s.takes > 0 {
		if err := sleep(ctx, s.takes); err != nil {
			return nil, err
		}
	}
	if s.down() || s.bad[r.Offset] {
		return nil, fault.Transient(errBoom)
	}
	return "paid", nil
}

func (s *shop) opens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

var flaps = flag.Int("flaps", 2, "how many random schedules of a flapping dependency to run")

// visit adds n records to c, rate a second with some randomness, each of a key of its own.
func (s *shop) visit(c *claim, rate, n int) {
	for i := range n {
		c.add(rec(int64(i), strconv.Itoa(i)))
		<-time.After(s.part(2 * time.Second / time.Duration(rate)))
	}
}

// TestCall_FewBadRecordsOfAHealthyService: whatever fails always is dead soon, and harms nobody.
func TestCall_FewBadRecordsOfAHealthyService(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{2, 5, 20} {
		for _, latency := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
			for seed := range uint64(*flaps * 3) {
				bubble(t, fmt.Sprintf("%dASecondWithin%s/%d", rate, latency, seed), func(t *testing.T) {
					b := newBench(t)
					s := newShop(seed, latency, 3, 6, 7, 11)
					d := s.of(t, b)
					c := b.claim(t, 4, 100, b.handler(t, nothing))
					began := time.Now()
					s.visit(c, rate, rate*90)
					elapse(time.Minute)
					require.Zero(t, s.opens(), "they do not open its breaker alone")
					require.Equal(t, record.BreakerClosed, d.State())
					for o := range int64(rate * 90) {
						if !s.bad[o] {
							require.Equal(t, record.Effected, c.outcome(o), o)
							continue
						}
						require.Equal(t, record.Dead, c.outcome(o), o)
						l := b.topic.of(o)[0]
						require.Equal(t, dlq.Exhausted, l.Reason)
						require.Equal(t, 3, l.Attempts)
						require.Less(t, l.LastFailed.Sub(began), time.Minute, "soon")
					}
				})
			}
		}
	}
}

// TestCall_BadRecordsAreTheOnlyOnesThatWait: what is healthy is asked too when the breaker may close.
func TestCall_BadRecordsAreTheOnlyOnesThatWait(t *testing.T) {
	t.Parallel()
	bubble(t, "AndTheLineSuppliesTheProbe", func(t *testing.T) {
		b := newBench(t)
		s := newShop(1, 10*time.Millisecond, 0, 1, 2, 3)
		d := s.of(t, b)
		c := b.claim(t, 4, 100, b.handler(t, nothing))
		c.add(recs(4, ownKey)...)
		elapse(time.Second)
		for range 20 {
			_ = d.Do(t.Context(), func(context.Context) error { return fault.Transient(errBoom) })
		}
		require.Equal(t, record.BreakerOpen, d.State())
		elapse(45 * time.Second)
		require.Equal(t, record.BreakerOpen, d.State(), "one of them was the probe")
		for i := range 300 {
			c.add(rec(int64(20+i), strconv.Itoa(20+i)))
			elapse(time.Second / 5)
		}
		require.Equal(t, record.BreakerClosed, d.State())
		require.Equal(t, 1, s.opens())
		c.idle()
		require.Len(t, b.topic.letters, 4)
		require.Len(t, c.outcomes, 304)
	})
	bubble(t, "AndAreSoManyThatTheirRouteBeginsNothingMore", func(t *testing.T) {
		b := newBench(t)
		s := newShop(1, 10*time.Millisecond)
		for o := range int64(100) {
			s.bad[o] = true
		}
		s.of(t, b)
		c := b.claim(t, 4, 100, b.handler(t, nothing))
		c.add(recs(100, ownKey)...)
		for i := range 3000 {
			c.add(rec(int64(1000+i), strconv.Itoa(1000+i)))
			elapse(time.Second / 5)
		}
		elapse(time.Minute)
		require.Len(t, c.outcomes, 3100)
		require.Len(t, b.topic.letters, 100)
	})
	bubble(t, "WithAnIdleLineTheyProbeThemselves", func(t *testing.T) {
		b := newBench(t)
		s := newShop(1, 10*time.Millisecond)
		s.down = func() bool { return time.Since(b.began) < 70*time.Second }
		d := s.of(t, b, func(c *downstream.Config) { c.Breaker.MinRequests = 4 })
		c := b.claim(t, 4, 100, b.handler(t, nothing))
		c.add(recs(4, ownKey)...)
		c.idle()
		require.Less(t, time.Since(b.began), 100*time.Second)
		require.Equal(t, record.BreakerClosed, d.State())
		require.Empty(t, b.topic.letters)
	})
}

// TestCall_FlappingKillsNobody: a service that is up and down by turns answers in between, which says nothing of the
// record that met it twice while it was down.
func TestCall_FlappingKillsNobody(t *testing.T) {
	t.Parallel()
	for _, byPart := range []bool{false, true} {
		for _, partitions := range []int{1, 2, 8} {
			for _, rate := range []int{1, 5} {
				for seed := range uint64(*flaps) {
					bubble(t, fmt.Sprintf("%dPartitions/ByPartition=%t/%dASecond/%d", partitions, byPart, rate, seed), func(t *testing.T) {
						flap(t, byPart, partitions, rate, seed)
					})
				}
			}
		}
	}
}

func flap(t *testing.T, byPart bool, partitions, rate int, seed uint64) {
	t.Helper()
	b := newBench(t)
	s := newShop(seed, 20*time.Millisecond)
	s.down = func() bool {
		return time.Since(b.began) < 5*time.Minute && time.Since(b.began)%(6*time.Second) >= 3*time.Second
	}
	s.of(t, b, func(c *downstream.Config) {
		if seed%2 == 1 {
			c.Breaker.MinRequests = 1000 // it does not open
		}
	})
	h := b.handler(t, nothing)
	var served sync.WaitGroup
	for p := range partitions {
		served.Go(func() {
			c := b.claim(t, 2, 100, h)
			c.byPart = byPart
			for i := range 5 * 60 * rate {
				r := rec(int64(p*100_000+i), strconv.Itoa(i))
				r.Partition = int32(p)
				c.add(r)
				<-time.After(s.part(2 * time.Second / time.Duration(rate)))
			}
			c.idle()
			require.Len(t, c.outcomes, 5*60*rate)
		})
	}
	served.Wait()
	require.Empty(t, b.topic.letters)
}
