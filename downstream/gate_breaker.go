package downstream

import (
	"cmp"
	"time"
)

// breakerNews is what a gate knows of the breaker that it follows.
//
// A breaker lets one call through at a time, whoever makes it: a record that has the gate's turn, or a client that has
// never heard of the gate. So the gate of a breaker learns nothing from a turn that ends without news, and gives none
// while a probe is out that is not one of its own.
type breakerNews struct {
	leads   bool
	probing int       // probes that the breaker has let through
	failed  int       // of them, in a row
	floor   time.Time // when the breaker will let the next one through, whatever the gate's own back-off is
}

// shutUntil is DownBecause by the breaker, which opens with the failure that shut the gate before, or with a later one.
func (g *Gate) shutUntil(t time.Time, why error) {
	g.mu.Lock()
	g.breaker.floor = t
	if g.shut {
		g.breaker.failed++
		g.why = cmp.Or(why, g.why)
	} else {
		g.close(why)
	}
	if t.After(g.due) {
		g.due = t
	}
	g.settleAndUnlock()
}

// answered says that the dependency answered somebody, and that the breaker is closed.
func (g *Gate) answered() {
	g.mu.Lock()
	g.reopen()
	g.settleAndUnlock()
}

// probeBegan says that the breaker has let a probe through.
func (g *Gate) probeBegan() {
	g.mu.Lock()
	if !g.shut { // somebody else's good news, from before the breaker's bad ones
		g.close(nil)
	}
	g.breaker.probing++
	g.settleAndUnlock()
}

// probeEnded comes after what the probe has shown: if that is nothing, the next waiter is let through at once.
func (g *Gate) probeEnded() {
	g.mu.Lock()
	g.breaker.probing--
	g.settleAndUnlock()
}

// isOpen costs an atomic load.
func (g *Gate) isOpen() bool { return g.word.Load()&1 == 0 }

// now is a pass of this moment, for whoever uses the dependency without the gate.
func (g *Gate) now() Pass { return Pass{g: g, epoch: g.word.Load() >> 1} }
