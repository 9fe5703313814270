package downstream

import "time"

// Pass is the right to use the dependency once. Say how it went with OK, Failed or Release; the first of them counts,
// and the zero Pass takes them all for nothing.
type Pass struct {
	g     *Gate
	t     *turn
	epoch uint64
}

// Gate is whose pass it is, nil for the zero Pass.
func (p Pass) Gate() *Gate { return p.g }

// Turn says whether the pass was given while the gate was not open: its owner is the probe, or one of the ramp.
func (p Pass) Turn() bool { return p.t != nil }

// OK says that the dependency answered.
func (p Pass) OK() {
	if p.g != nil && (p.t != nil || p.g.word.Load()&1 == 1) {
		p.g.end(p, verdictOK, time.Time{}, nil)
	}
}

// Failed says that the dependency is down.
func (p Pass) Failed() { p.FailedUntil(time.Time{}) }

// FailedUntil is Failed by a dependency that named the time before which nobody should ask again; the zero time if it
// did not.
func (p Pass) FailedUntil(t time.Time) { p.FailedBecause(t, nil) }

// FailedBecause is FailedUntil with the failure, which Gate.Why gives. Its text must be one that may be shown.
func (p Pass) FailedBecause(t time.Time, why error) {
	if p.g != nil {
		p.g.end(p, verdictFailed, t, why)
	}
}

// Release says that the pass was not used, or that nothing was learnt: the next waiter has the turn.
func (p Pass) Release() {
	if p.g != nil && p.t != nil {
		p.g.end(p, verdictNone, time.Time{}, nil)
	}
}

// turn is the right to use a dependency whose gate is not open. round is the closing or reopening of the gate that it
// was granted after: out counts the turns of the present one.
type turn struct {
	ready chan struct{}
	epoch uint64
	round uint64
	timer *time.Timer
	done  bool
}

type passVerdict uint8

const (
	verdictNone passVerdict = iota
	verdictOK
	verdictFailed
)

func (g *Gate) end(p Pass, v passVerdict, until time.Time, why error) {
	g.mu.Lock()
	counts := true
	if p.t != nil {
		if p.t.done {
			// The turn was over before: its timer ended it, and the next one may be out. A success of it is still one.
			counts = v == verdictOK
		}
		g.finish(p.t)
	}
	if counts {
		g.learn(p, v, until, why)
	}
	g.settleAndUnlock()
}

// learn takes the news of a pass. A failure is news only if the pass is of this epoch: of a thousand that failed with
// the one that shut the gate, 999 say nothing more, and only the probe's failure makes the wait longer.
func (g *Gate) learn(p Pass, v passVerdict, until time.Time, why error) {
	switch v {
	case verdictNone:
	case verdictOK:
		if !g.breaker.leads {
			g.reopen()
		}
	case verdictFailed:
		if p.epoch == g.epoch {
			g.close(why)
		}
		if g.shut && until.After(g.due) {
			g.due = until
		}
	}
}

// finish ends a turn once. Turns of an earlier round are not counted any more.
func (g *Gate) finish(t *turn) {
	if t.done {
		return
	}
	t.done = true
	if t.timer == nil { // never granted
		return
	}
	t.timer.Stop()
	if t.round == g.round {
		g.out = max(g.out-1, 0)
	}
}

// grant lets t go.
func (g *Gate) grant(t *turn) {
	g.out++
	t.epoch, t.round = g.epoch, g.round
	p := Pass{g: g, t: t, epoch: t.epoch}
	over := p.Failed
	if g.breaker.leads {
		over = p.Release
	}
	t.timer = time.AfterFunc(g.cfg.ProbeTimeout, over)
	close(t.ready)
}
