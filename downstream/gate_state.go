package downstream

import (
	"time"

	"github.com/headrace/headrace/internal/backoff"
)

// reopen begins the ramp: what waits is let through in growing numbers. With nobody waiting it is the open gate.
func (g *Gate) reopen() {
	g.fails, g.breaker.failed = 0, 0
	g.breaker.floor = time.Time{}
	if g.shut {
		g.shut, g.window, g.out = false, 0, 0
		g.round++
	}
	g.window++
}

// close shuts the gate for the next back-off, because of why, or of what is known already if that is nil. The turns that are
// out belong to the past now.
func (g *Gate) close(why error) {
	if !g.lineClosed() {
		g.since = time.Now()
	}
	if why != nil {
		g.why = why
	}
	wait := backoff.Exponential(g.cfg.Base, g.cfg.Cap, g.fails)
	g.shut, g.out = true, 0
	g.epoch++
	g.round++
	g.fails++
	g.due = time.Now().Add(wait/2 + backoff.Jitter(wait/2))
	if g.breaker.floor.After(g.due) {
		g.due = g.breaker.floor
	}
}

// closed is whether anybody must wait: down, or in the ramp.
func (g *Gate) closed() bool { return g.shut || g.waiting() > 0 }

// lineClosed is whether who has not failed must wait. In the ramp it does not wait behind those that have: they may be the
// few records that the dependency fails always, each for as long as it likes, and it is well for all others.
func (g *Gate) lineClosed() bool { return g.shut || len(g.queue) > 0 }

func (g *Gate) waiting() int { return len(g.queue) + len(g.again) }

func (g *Gate) isShut() bool { return g.lineClosed() && !g.probeDue() }

// settleAndUnlock grants what may be granted, publishes the state for the fast path, unlocks, and tells the watchers
// outside of the lock, because they ask Shut.
func (g *Gate) settleAndUnlock() {
	g.grantDue()
	g.publish()
	g.armTimer()
	var tell []func()
	if now := g.isShut(); now != g.told {
		g.told = now
		for _, f := range g.watchers {
			tell = append(tell, f)
		}
	}
	g.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

func (g *Gate) publish() {
	word := g.epoch << 1
	if g.closed() {
		word |= 1
	} else {
		g.why = nil
	}
	g.word.Store(word)
}
