package main

import (
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// watch is told what happens, and when.
type watch struct {
	mu       sync.Mutex
	answered int       // calls that got an answer
	cutAt    time.Time // zero before
	healAt   time.Time // when healing began
	healedAt time.Time // when it was done
	firstAt  time.Time // when a call got an answer again
	entry    int       // calls that failed of the outage, probes apart
	opened   bool      // since the cut
	opens    time.Duration
	trips    int
	assigned chan struct{} // closed when the consumer has partitions
	once     sync.Once
	hold     time.Duration // the longest
}

func newWatch() *watch { return &watch{assigned: make(chan struct{})} }

// calls are the dependency's hooks.
func (w *watch) calls() *record.Hooks {
	return &record.Hooks{OnCall: w.call, OnBreaker: w.breaker}
}

// records are the consumer's.
func (w *watch) records() *record.Hooks {
	return &record.Hooks{
		OnHold: func(i record.HoldInfo) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.hold = max(w.hold, i.Took)
		},
		OnClaim: func(i record.ClaimInfo) { w.once.Do(func() { close(w.assigned) }) },
	}
}

func (w *watch) call(i record.CallInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch i.Outcome {
	case record.CallSucceeded, record.CallAnswered:
		w.answered++
		if w.firstAt.IsZero() && !w.healAt.IsZero() {
			w.firstAt = time.Now()
		}
	case record.CallFailed:
		if !w.cutAt.IsZero() && !i.Probe {
			w.entry++
		}
	}
}

func (w *watch) breaker(i record.BreakerInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.To != record.BreakerOpen || w.cutAt.IsZero() {
		return
	}
	if !w.opened {
		w.opened, w.opens = true, time.Since(w.cutAt)
	}
	if i.From == record.BreakerClosed {
		w.trips++
	}
}

func (w *watch) cut()    { w.stamp(&w.cutAt) }
func (w *watch) heal()   { w.stamp(&w.healAt) }
func (w *watch) healed() { w.stamp(&w.healedAt) }

func (w *watch) stamp(at *time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*at = time.Now()
}

// away says that the outage is on.
func (w *watch) away() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.cutAt.IsZero() && w.healAt.IsZero()
}

// answers is how many calls got one.
func (w *watch) answers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answered
}

// recovery is how long the first answer took once all was well again; without one, until now.
func (w *watch) recovery() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.firstAt
	if first.IsZero() {
		first = time.Now()
	}
	return max(0, first.Sub(w.healedAt))
}
