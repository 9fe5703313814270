package middleware

import (
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// wait holds the chain. The gate that is shut stands in the way of again, which waits there.
func (c *chain) wait(d Decision) bool {
	c.held = d.Dependency
	switch d.Dependency {
	case BusyElsewhere:
		return c.heldFor(d.Dependency, d.Wait) && c.again()
	case Postponed, NoBudget: // for a time, and for nothing that a try could find missing
		ok := c.heldFor(d.Dependency, d.Wait)
		if ok {
			c.holding.got(d.Dependency)
		}
		if d.Dependency == NoBudget {
			c.head().Spent = 0
		}
		return ok && c.again()
	case fault.DeadLetterTopic: // a handler says so; its gate is in no handler's way
		return c.heldFor(d.Dependency, max(d.Wait, c.rt.Retry.Base)) && c.again()
	case RetryAfter:
		c.rt.Gates.Get(RetryAfter).DownBecause(c.rt.until(d.Wait), c.rt.shown(c.head(), c.head().Err))
	}
	if called := c.rt.Gates.called; called != nil && d.Dependency == called.Name() {
		return c.ask(called, d) && c.again()
	}
	return c.again()
}

// ask waits before the chain goes to the gate of the calls: for the Retry-After that a call was answered with, and if the
// gate is not shut. It follows the breaker, and for what that does not count (a bulkhead of somebody else's, an outage
// that is over by now) nothing stops the next call.
func (c *chain) ask(gate *downstream.Gate, d Decision) bool {
	wait := d.Wait
	_, shut := gate.Since()
	if c.fault.Class == fault.ClassUnavailable && (shut || c.fault.Refused()) { // the gate has its time, and the breaker its own
		wait = 0
	}
	if !shut {
		least := backoff.Exponential(c.rt.Retry.Base, c.rt.Retry.Cap, c.free-1)
		wait = max(wait, least/2+backoff.Jitter(least/2))
	}
	return wait <= 0 || c.heldFor(gate.Name(), wait)
}

// heldFor holds the chain for a time, whoever else runs.
func (c *chain) heldFor(dependency string, d time.Duration) bool {
	c.pause()
	c.hold(dependency, c.reason)
	return c.sleep(d)
}

// pause gives up the lane, or the room of one that ran again.
func (c *chain) pause() {
	if !c.waiting {
		record.Wait(c.rs)
		c.waiting = true
	}
}

// together is the grid on which longer waits end. Those whose waits end at once run in one transaction, and their verdicts
// and letters go together, where each alone would take a transaction of its own.
const together = 20 * time.Millisecond

// whole is d, up to together longer if that is little of it, so that it ends at a time that others share.
func whole(d time.Duration, now time.Time) time.Duration {
	if d < 4*together {
		return d
	}
	return d + together - time.Duration(now.Add(d).UnixNano())%together
}

// sleep ends early, with false, when the claim begins to end.
func (c *chain) sleep(d time.Duration) bool {
	return backoff.WaitUnless(c.ctx(), whole(d, time.Now()), c.soft) && !c.head().Ending()
}
