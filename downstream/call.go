package downstream

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// Call is one call that the breaker let through.
type Call struct {
	d          *Dependency
	route      string
	began, due time.Time
	gate       Pass // of the moment when the call began
	span       trace.Span

	// Of the breaker, which has the lock.
	done          func(error)
	seen          seen   // when it began
	after, streak Streak // before it, and with it
	probe, ended  bool
	prev, next    *Call
}

// begin asks the breaker, which may have a probe to give, and starts the clock.
func (c *Call) begin(limit time.Duration) error {
	c.began, c.gate = time.Now(), c.d.gate.now()
	c.due = c.began.Add(limit)
	if err := c.d.breaker.allow(c); err != nil {
		c.endSpan(record.CallRefused)
		c.d.refused(c.route, err)
		return err
	}
	return nil
}

// Probe says that it is the one that a half-open breaker lets through.
func (c *Call) Probe() bool { return c.probe }

// End tells what became of the call; the first time counts, and tells the hooks. failed is false for a success, and f is
// what a failure means. What End says is whether the record that called is to be charged for it, also when the call had
// come to its limit before.
//
// Call it however the call ends, after a panic and runtime.Goexit too: a call that is left open keeps a half-open
// breaker from the next probe until its limit. Who knows nothing of the outcome says fault.ClassCancelled.
//
// [Call.Fail] also says why.
func (c *Call) End(failed bool, f fault.Fault) Charge { return c.conclude(failed, f, nil) }

// Fail is End of a call that failed with why, of which f is the meaning: hooks are told if that opens the breaker, and
// whoever asks what the records at the gate wait for. What looks like a secret in the text of why is replaced; what a record
// holds is for the caller to leave out (record.Record.Redact).
func (c *Call) Fail(f fault.Fault, why error) Charge { return c.conclude(true, f, why) }

func (c *Call) conclude(failed bool, f fault.Fault, why error) Charge {
	evidence := c.evidence(failed, f)
	return c.end(evidence, outcome(failed, f, evidence), f, why)
}

// Streak is what the record's next call begins with, once this one has ended.
func (c *Call) Streak() Streak {
	c.d.breaker.mu.Lock()
	defer c.d.breaker.mu.Unlock()
	return c.streak
}

func (c *Call) end(e fault.Evidence, outcome string, f fault.Fault, why error) Charge {
	if e != fault.SaysDown {
		why = nil // nobody is told
	}
	why = redact.Rules(why, nil)
	first, charge := c.d.breaker.end(c, e, why)
	if e == fault.SaysUp {
		c.d.breaker.up()
	}
	if !first {
		return charge
	}
	if e == fault.SaysDown && f.Class == fault.ClassUnavailable {
		c.d.heldBack(c, f, why)
	}
	if c.probe {
		c.d.gate.probeEnded()
	}
	info := record.CallInfo{
		Dependency: c.d.cfg.Name, Route: c.route, Outcome: outcome, Probe: c.probe, Took: time.Since(c.began),
	}
	if outcome != record.CallSucceeded {
		info.Class = f.Class.String()
	}
	c.endSpan(outcome)
	c.d.tell.call(info)
	return charge
}

// heldBack shuts the gate before records that are to be held go there, although the breaker is closed: a dependency
// that refuses our credentials is asked one record at a time. While the breaker is not closed it leads the gate. A record
// that fails while others are answered does not shut it; where it is shut, whoever fails makes its back-off longer.
func (d *Dependency) heldBack(c *Call, f fault.Fault, why error) {
	d.breaker.leading.Lock()
	defer d.breaker.leading.Unlock()
	if !d.breaker.closed() || d.gate.isOpen() && d.breaker.oldNews(c) {
		return
	}
	c.gate.FailedBecause(asked(f.RetryAfter), why)
}

func outcome(failed bool, f fault.Fault, e fault.Evidence) string {
	switch {
	case !failed:
		return record.CallSucceeded
	case e == fault.SaysDown:
		return record.CallFailed
	case f.Refused():
		return record.CallRefused
	case f.Class == fault.ClassCancelled:
		return record.CallCancelled
	}
	return record.CallAnswered
}

// refused tells the hooks of a call that was not begun.
func (d *Dependency) refused(route string, err error) {
	class := fault.ClassUnavailable
	if errors.Is(err, fault.ErrNoTime) {
		class = fault.ClassTransient
	}
	d.tell.call(record.CallInfo{Dependency: d.cfg.Name, Route: route, Outcome: record.CallRefused, Class: class.String()})
}

// Charge is whose a failure is.
type Charge uint8

// The charges.
const (
	// Charged: it is the record's, or the dependency has answered somebody since the call began; or since the one before,
	// and nobody else began to fail. An attempt is spent.
	Charged Charge = iota
	// Free: the dependency's fault, as far as anybody can tell: try again after a back-off, at no charge.
	Free
	// Outage: it was the probe, or the breaker has opened since the call began: hold, at no charge.
	Outage
)
