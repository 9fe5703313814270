package middleware

import (
	"sync"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/internal/durations"
	"github.com/headrace/headrace/record"
)

// attemptTimes are those of attempts that succeeded, if somebody asks.
type attemptTimes struct {
	mu   sync.Mutex
	took durations.Recent
}

// normalTime is what an attempt takes as a rule, 0 if nobody knows or cares.
func (rt *Route) normalTime() time.Duration {
	p := rt.Retry
	if p.NormalTime != downstream.Measured {
		return p.NormalTime
	}
	rt.times.mu.Lock()
	defer rt.times.mu.Unlock()
	return min(rt.times.took.P99(time.Now()), p.CallTimeout+p.AttemptTimeout)
}

// measure looks at what those of rs took that are effected now, and that had spent something before.
func (rt *Route) measure(rs []*record.Record, before map[*record.Record]time.Duration) {
	if rt.Retry.NormalTime != downstream.Measured {
		return
	}
	now := time.Now()
	rt.times.mu.Lock()
	defer rt.times.mu.Unlock()
	for _, r := range rs {
		if r.Outcome() == record.Effected {
			rt.times.took.Add(now, r.Spent-before[r])
		}
	}
}
