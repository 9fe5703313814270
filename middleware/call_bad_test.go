package middleware_test

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/record"
)

var crowds = flag.Int("crowds", 1, "how many seeds of each crowd to run")

// crowd is records that always fail by a healthy service's fault, as far as a status says, among others. They come to
// each of the routes that call it.
type crowd struct {
	routes     int
	partitions int
	lanes      int
	maxBatch   int
	latency    time.Duration
	// bad come at the head of each partition, after warm healthy ones.
	warm, bad int
	// then healthy ones, of which each n-th is bad, if n is not 0; every apart.
	then, nth int
	every     time.Duration
	badTakes  time.Duration
	seed      uint64
	within    time.Duration // all healthy ones are effected after the last has come
}

// member is a route with its claims, one a partition.
type member struct {
	*bench
	claims []*claim
	s      *shop
}

func (c crowd) offset(p, i int) int64 { return int64(p*10_000 + i) }

func (c crowd) isBad(i int) bool {
	if i -= c.warm; i < 0 {
		return false
	}
	if i -= c.bad; i < 0 {
		return true
	}
	return c.nth > 0 && i%c.nth == 0
}

func (c crowd) all() int { return c.warm + c.bad + c.then }

// routesOn makes the routes, which share one dependency.
func (c crowd) routesOn(t *testing.T, s *shop) (ms []*member) {
	t.Helper()
	for p := range c.partitions {
		for i := range c.all() {
			s.bad[c.offset(p, i)] = c.isBad(i)
		}
	}
	var d *downstream.Dependency
	for range c.routes {
		m := &member{bench: newBench(t), s: s}
		if d == nil {
			d = s.of(t, m.bench)
		} else {
			m.writers(t, 2)
			m.calls(t, s.do)
			m.rt.Call.Dependency = d
		}
		h := m.handler(t, nothing)
		for range c.partitions {
			m.claims = append(m.claims, m.claim(t, c.lanes, c.maxBatch, h))
		}
		ms = append(ms, m)
	}
	return ms
}

// produce adds each partition's records to all routes.
func (c crowd) produce(ms []*member) {
	var produced sync.WaitGroup
	for p := range c.partitions {
		produced.Go(func() {
			for i := range c.all() {
				for _, m := range ms {
					r := rec(c.offset(p, i), ownKey(i))
					r.Partition = int32(p)
					m.claims[p].add(r)
				}
				if i == c.warm-1 {
					<-time.After(time.Second)
				}
				if c.every > 0 && i >= c.warm+c.bad {
					<-time.After(c.every)
				}
			}
		})
	}
	produced.Wait()
}

// trickle adds healthy ones to each partition of each route, with time between them, until done says so.
func (c crowd) trickle(ms []*member, every time.Duration, done func() bool) {
	for i := c.all(); !done(); i++ {
		for _, m := range ms {
			for p, cl := range m.claims {
				r := rec(c.offset(p, i), ownKey(i))
				r.Partition = int32(p)
				cl.add(r)
			}
		}
		elapse(every)
	}
}

// left counts the healthy ones that are not effected and the bad ones that are not dead.
func (c crowd) left(ms []*member) (healthy, bad int) {
	for _, m := range ms {
		for p, cl := range m.claims {
			for i := range c.all() {
				switch is := cl.outcome(c.offset(p, i)); {
				case c.isBad(i) && is != record.Dead:
					bad++
				case !c.isBad(i) && is != record.Effected:
					healthy++
				}
			}
		}
	}
	return healthy, bad
}

// check says how the crowd goes: all healthy ones are effected within a time, whatever the bad ones do; and these die at
// their own cost once others are answered now and then.
func (c crowd) check(t *testing.T) {
	s := newShop(c.seed, c.latency)
	s.takes = c.badTakes
	ms := c.routesOn(t, s)
	began := time.Now()
	c.produce(ms)
	flowed := time.Since(began)
	healthy, bad := c.left(ms)
	for healthy > 0 && time.Since(began) < flowed+c.within {
		elapse(time.Second)
		healthy, bad = c.left(ms)
	}
	at := time.Since(began)
	require.Zero(t, healthy, "effected, after %s; the breaker opened %d times", at, s.opens())
	began = time.Now()
	c.trickle(ms, 2*time.Second, func() bool {
		healthy, bad = c.left(ms)
		return bad == 0 || time.Since(began) > 20*time.Minute
	})
	require.Zero(t, bad, "dead")
	for _, m := range ms {
		for o, ls := range m.topic.letters {
			require.True(t, s.bad[o], "%d is dead and healthy", o)
			require.Len(t, ls, 1)
			require.Equal(t, dlq.Exhausted, ls[0].Reason)
			require.Equal(t, 3, ls[0].Attempts)
		}
	}
}

func TestCall_BadRecordsAtTheHeadDoNotStopAHealthyServicesRoutes(t *testing.T) {
	t.Parallel()
	for _, routes := range []int{1, 2} {
		for _, bad := range []int{3, 10, 30, 100} {
			for _, warm := range []int{0, 100} {
				for _, every := range []time.Duration{0, 50 * time.Millisecond} {
					for seed := range *crowds {
						c := crowd{
							seed:   uint64(seed),
							routes: routes, partitions: 1, lanes: 2, maxBatch: 500, latency: 10 * time.Millisecond,
							warm: warm, bad: bad, then: 200, every: every, within: 2 * time.Minute,
						}
						if routes*bad > 100 {
							c.within = 10 * time.Minute // what has not failed yet is enough to open it again and again
						}
						bubble(t, fmt.Sprintf("%dRoutes/%dAfter%d/Each%s/%d", routes, bad, warm, every, seed), c.check)
					}
				}
			}
		}
	}
	// As of a stock consumer's handler: one record of a partition at a time.
	bubble(t, "OneAtATimeOfEachPartition", crowd{
		routes: 2, partitions: 8, lanes: 1, maxBatch: 1, latency: 10 * time.Millisecond, bad: 3, then: 100, within: 15 * time.Minute, // as a rule one; it is drawn by lot
	}.check)
	bubble(t, "EachFailsAfterALongTime", crowd{
		routes: 2, partitions: 1, lanes: 2, maxBatch: 500, latency: 10 * time.Millisecond, badTakes: 9 * time.Second,
		bad: 30, then: 200, every: 50 * time.Millisecond, within: 2 * time.Minute,
	}.check)
}

func TestCall_BadRecordsAmongOthersDoNotStopAHealthyServicesRoutes(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{0, 50 * time.Millisecond} {
		for _, latency := range []time.Duration{0, 10 * time.Millisecond} {
			for nth, within := range map[int]time.Duration{
				0: time.Second, 20: time.Second, 5: 2 * time.Minute,
				2: time.Hour, // what fails as often is open by FailureRatio, most of the time
			} {
				bubble(t, fmt.Sprintf("OneOf%d/Each%s/Within%s", nth, every, latency), crowd{
					routes: 2, partitions: 1, lanes: 2, maxBatch: 500, latency: latency,
					then: 400, nth: nth, every: every, within: within,
				}.check)
			}
		}
	}
}
