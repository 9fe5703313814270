package middleware_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// callFate is what a record's call does. In an outage every call fails, in any way.
type callFate uint8

const (
	answered   callFate = iota
	callsShaky          // fails twice at most at the record's cost, and otherwise free
	callsSlowly
	callsHang    // until its context ends, once
	callsStick   // and does not heed that, once
	callsExhaust // fails for two minutes: dead if anybody else is answered, effected if not
	callsPoison
	callsPanic
	callsExit
	callsSkip
)

// callSchedule adds a call to a schedule.
type callSchedule struct {
	*schedule
	dep      *downstream.Dependency
	fates    map[int64]callFate
	from, to time.Time // of the outage

	mu      sync.Mutex
	chance  *rand.Rand
	tries   map[int64]int    // since the claim began
	open    map[string]int64 // by domain: the one that was called and has no end yet
	probing int
}

func newCallSchedule(s *schedule, seed uint64) *callSchedule {
	rnd := rand.New(rand.NewPCG(seed, 3))
	c := &callSchedule{schedule: s, fates: map[int64]callFate{}, chance: rand.New(rand.NewPCG(seed, 4))}
	for _, o := range s.all {
		if f := callFate(rnd.IntN(30)); s.fates[o] == healthy && f <= callsSkip {
			c.fates[o] = f
		}
	}
	c.from = s.began.Add(time.Duration(rnd.IntN(5000)) * time.Millisecond)
	c.to = c.from.Add(time.Duration(rnd.IntN(60)) * time.Second)
	c.dep = s.bench.calls(s.t, c.do, func(cfg *downstream.Config) {
		cfg.MaxConcurrent = 1 + rnd.IntN(20)
		cfg.Breaker = downstream.BreakerConfig{
			MinRequests: 2 + rnd.IntN(20), OpenFor: time.Duration(1+rnd.IntN(10)) * time.Second, Window: time.Duration(10+rnd.IntN(50)) * time.Second,
		}
	})
	s.rt.Call.Timeout, s.rt.Call.HardGrace = 2*time.Second, time.Second
	s.rt.Hooks.OnReport = nil
	return c
}

// begin is told of a new claim.
func (c *callSchedule) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries, c.open = map[int64]int{}, map[string]int64{}
}

// ended is told that r has its end.
func (c *callSchedule) ended(r *record.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, r.Domain())
}

func (c *callSchedule) do(ctx context.Context, r *record.Record) (any, error) {
	try, way, leave := c.enter(r)
	defer leave()
	if at := time.Now(); !at.Before(c.from) && at.Before(c.to) {
		return nil, c.outage(ctx, way)
	}
	switch f := c.fates[r.Offset]; f {
	case answered:
	case callsShaky:
		return "paid", c.shakyCall(try)
	case callsSlowly:
		return "paid", sleep(ctx, time.Second)
	case callsHang:
		if try == 1 {
			return nil, sleep(ctx, time.Hour)
		}
	case callsStick:
		if try == 1 {
			<-time.After(20 * time.Second)
		}
	case callsExhaust:
		if time.Since(c.began) < 2*time.Minute {
			return nil, fault.Ambiguous(errBoom)
		}
	case callsPoison:
		return nil, errBoom
	case callsPanic:
		panic("boom")
	case callsExit:
		runtime.Goexit()
	case callsSkip:
		return nil, fault.Skip("not ours")
	}
	return "paid", nil
}

// enter checks the order of a key, and that there is one probe at a time.
func (c *callSchedule) enter(r *record.Record) (try, way int, leave func()) {
	half := c.dep.State() == record.BreakerHalfOpen && c.fates[r.Offset] != callsStick
	c.mu.Lock()
	defer c.mu.Unlock()
	if half {
		if c.probing++; c.probing > 1 {
			c.t.Errorf("%s: %d probes at once", c.name, c.probing)
		}
	}
	if d := r.Domain(); d != "" {
		if o, ok := c.open[d]; ok && o != r.Offset {
			c.t.Errorf("%s: %d is called while %d before it has no end", c.name, r.Offset, o)
		}
		c.open[d] = r.Offset
	}
	c.tries[r.Offset]++
	return c.tries[r.Offset], c.chance.IntN(6), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if half {
			c.probing--
		}
	}
}

func (c *callSchedule) outage(ctx context.Context, way int) error {
	switch way {
	case 0:
		return fault.Transient(errBoom)
	case 1:
		return fault.Ambiguous(errBoom)
	case 2:
		return fault.RetryAfter(errBoom, time.Second)
	case 3:
		return fault.Unavailable(errBoom, "payments")
	case 4:
		return sleep(ctx, time.Hour)
	}
	_ = sleep(ctx, 300*time.Millisecond)
	return fault.Transient(errBoom)
}

// shakyCall fails in all ways that cost nothing, and in two that may.
func (c *callSchedule) shakyCall(try int) error {
	switch try {
	case 1:
		return fault.Transient(errBoom)
	case 2, 3:
		return fault.Busy(errBoom)
	case 4:
		return fault.Unavailable(errBoom, "another")
	case 5:
		return fault.RetryAfter(errBoom, time.Minute)
	case 6:
		return fault.Ambiguous(errBoom)
	}
	return nil
}

// deadly says whether a record may be dead because of its call.
func (c *callSchedule) deadly(o int64) bool {
	switch c.fates[o] {
	case callsPoison, callsPanic, callsExit, callsExhaust:
		return true
	case answered, callsShaky, callsSlowly, callsHang, callsStick, callsSkip:
	}
	return false
}

// check is schedule.check for a record that only its call can harm; false if that is no such record.
func (c *callSchedule) check(o int64) bool {
	effects, letters := c.in.effectsOf(o), c.topic.of(o)
	for _, l := range letters {
		require.LessOrEqual(c.t, l.Attempts, 3, "%s: %d", c.name, o)
	}
	switch c.fates[o] {
	case answered, callsShaky, callsSlowly, callsHang, callsStick:
		return false
	case callsExhaust:
		require.Equal(c.t, 1, effects+min(len(letters), 1), "%s: %d", c.name, o)
		for _, l := range letters {
			require.Contains(c.t, []int{0, 3}, l.Attempts, "%s: %d: none if the verdict is of an earlier claim", c.name, o)
		}
	case callsPoison, callsPanic, callsExit:
		require.Zero(c.t, effects, "%s: %d", c.name, o)
		require.NotEmpty(c.t, letters, "%s: %d", c.name, o)
	case callsSkip:
		require.Zero(c.t, effects+len(letters), "%s: %d", c.name, o)
	}
	return true
}
