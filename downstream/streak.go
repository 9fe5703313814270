package downstream

import (
	"time"

	"github.com/headrace/headrace/fault"
)

// seen counts what a breaker has seen: a call sees by it what happened since it began, and needs no clock.
type seen struct {
	opened  uint64 // times that it opened
	answers uint64 // of the dependency, to anybody
	fresh   uint64 // failures by the dependency's fault of those that had not failed before
}

// Streak is what is remembered of a record between two of its calls: how things stood when the last one began, if that
// failed by the dependency's fault. The zero value is of a record that has not failed. See [Dependency.BeginAgain].
type Streak struct {
	failed bool
	began  seen // the last call
	first  seen // the first one had failed by then
}

// Failed says that the last call failed by the dependency's fault.
func (s Streak) Failed() bool { return s.failed }

// with is the streak after c, which began after s.
func (s Streak) with(c *Call, e fault.Evidence, now seen) Streak {
	switch e {
	case fault.SaysUp:
		return Streak{}
	case fault.SaysNothing:
		return s
	case fault.SaysDown:
	}
	next := Streak{failed: true, began: c.seen, first: s.first}
	if !s.failed {
		next.began.fresh++ // its own: what counts is the others'
		next.first = now
	}
	return next
}

// steady is for how long an answer to anybody shows that a dependency is well.
const steady = 5 * time.Second

// knownBy says that a failure after s is the record's once more, and no news of the dependency: somebody was answered just
// now, or since the record began to fail. Else a few bad records would open the breaker of a healthy dependency, and some
// dozens that opened it before anybody was answered would open it again each time that a probe has closed it. It is news if
// many have begun to fail since; and when nobody is answered for a whole window: then only the breaker, whose probe anybody
// may be, finds out.
func (b *breaker) knownBy(s Streak) bool {
	cfg := b.d.cfg.Breaker
	if !s.failed || b.seen.fresh-b.freshThen > uint64(cfg.MinRequests)/2 { //nolint:gosec // validated
		return false
	}
	quiet := time.Since(b.answered)
	return quiet < steady || b.seen.answers != s.first.answers && quiet < cfg.Window
}

// chargeOf says whose failure it is that c failed by the dependency's fault.
//
// The calls of a record may be so short that nobody is answered during one of them. So what counts is also what came
// between: others were answered, and nobody but this record began to fail. When a dependency is up and down by turns
// others begin to fail too; and what was answered after the breaker had opened says nothing of a record that failed before.
func (b *breaker) chargeOf(c *Call) Charge {
	last := c.after.began
	switch {
	case b.seen.opened != c.seen.opened: // by others, by this one, or again by a probe
		return Outage
	case b.seen.answers != c.seen.answers:
		return Charged
	case c.after.failed && b.seen.answers != last.answers && b.seen.fresh == last.fresh && b.seen.opened == last.opened:
		return Charged
	}
	return Free
}
