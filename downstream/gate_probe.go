package downstream

import (
	"math/rand/v2"
	"time"
)

// offer is how long a probe that is due is the line's, if it is offered.
const offer = time.Second

// offerMost is how many may wait for an offer to the line while others wait: the probe comes with its message, and what
// else that has waits from then on.
const offerMost = 256

// offered says that the line may supply the next probe: if all that wait have failed before, and after 2, 4, 8, … failed
// probes if they are few. They may be all alike, the bad records at the head of their partitions, and what would be
// answered stands behind them in line.
func (g *Gate) offered() bool {
	n := g.breaker.failed
	return len(g.queue) == 0 || len(g.queue) <= offerMost && n > 1 && n&(n-1) == 0
}

// granted is from when on a waiter may be the probe.
func (g *Gate) granted() time.Time {
	if g.offered() {
		return g.due.Add(offer)
	}
	return g.due
}

func (g *Gate) probeDue() bool {
	return g.mayProbe() && g.offered() && !time.Now().Before(g.due)
}

// mayProbe says that nobody is out to find out about the dependency.
func (g *Gate) mayProbe() bool { return g.shut && g.out == 0 && g.breaker.probing == 0 }

func (g *Gate) grantDue() {
	if g.shut {
		if g.mayProbe() && g.waiting() > 0 && !time.Now().Before(g.granted()) {
			g.grant(g.first())
		}
		return
	}
	for g.waiting() > 0 && g.out < g.window {
		g.grant(g.first())
	}
}

// first takes the waiter whose turn it is out of its queue. Once a probe has failed the next one is drawn by lot: one after
// the other, as many bad records as came first would be asked, each after a back-off, whether a healthy service is well.
func (g *Gate) first() *turn {
	queue, i := &g.queue, 0
	if len(*queue) == 0 {
		queue = &g.again
	}
	if g.shut && g.breaker.failed > 0 {
		i = rand.IntN(len(*queue))
	}
	q := *queue
	t := q[i]
	copy(q[1:i+1], q[:i])
	*queue = q[1:]
	return t
}

// armTimer wakes the gate when the next probe is due: for the first waiter, or for the watchers if nobody waits that has
// not failed, and after its offer for who has.
func (g *Gate) armTimer() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if !g.mayProbe() {
		return
	}
	wait := time.Until(g.due)
	if wait <= 0 && g.waiting() > 0 {
		wait = time.Until(g.granted())
	}
	if wait > 0 {
		g.timer = time.AfterFunc(wait, func() {
			g.mu.Lock()
			g.settleAndUnlock()
		})
	}
}
