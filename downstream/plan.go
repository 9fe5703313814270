package downstream

import (
	"errors"
	"math"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
)

// Signal is all that a decision about a failed try depends on.
type Signal struct {
	// Retry is the policy.
	Retry RetryConfig
	// Fault is what the failure means, its Retry-After included.
	Fault fault.Fault
	// Method is an HTTP request's; "" is something else, which is not idempotent by itself.
	Method string
	// Repeatable says that the operation may be repeated although it may have been executed: it is idempotent, carries an
	// idempotency key, or is asked about before it is sent again.
	Repeatable bool
	// Attempt is the number of the try that failed, 1 for the first.
	Attempt int
	// Left is the time that is left for waiting and trying, NoLimit without a deadline.
	Left time.Duration
	// BreakerOpen says that the dependency's breaker is not closed.
	BreakerOpen bool
	// NoTokens says that the dependency's retry tokens are spent.
	NoTokens bool
	// Random, in [0, 1), is the jitter.
	Random float64
}

// NoLimit is Signal.Left without a deadline.
const NoLimit = time.Duration(math.MaxInt64)

// Decision is what Plan says: another try after Wait, or none for Reason.
type Decision struct {
	Again bool
	// Wait is how long to wait before the next try.
	Wait time.Duration
	// Reason is why there is none, "" if there is one.
	Reason Reason
}

// Reason is why something is not tried again.
type Reason string

// The reasons. When several hold the first of them, in this order, is given.
const (
	// UnknownOutcome: it may have been executed, and nothing says that it may be repeated.
	UnknownOutcome Reason = "unknown_outcome"
	// NotTransient: it would fail again, or it is not worth asking.
	NotTransient Reason = "not_transient"
	// MaxAttempts: all tries are spent.
	MaxAttempts Reason = "max_attempts"
	// DeadlineExhausted: nothing would be left of the time after the wait that the back-off or the answer asks for.
	DeadlineExhausted Reason = "deadline_exhausted"
	// Open: the breaker is open, so the outage is known and one probe at a time is asked.
	Open Reason = "breaker_open"
	// RetryTokens: the dependency fails so much that further tries would only load it.
	RetryTokens Reason = "retry_tokens"
)

// Reasons are all reasons. Do not change it.
var Reasons = [...]Reason{UnknownOutcome, NotTransient, MaxAttempts, DeadlineExhausted, Open, RetryTokens}

// Plan is the one place that knows whether something that failed is tried again, outside of a route and, through
// middleware.Policy, inside of one. It has no state and no clock.
//
// A Retry-After is a floor, with the back-off on top so that not all come back in the same moment; where only the floor
// fits into the time that is left, it is waited for alone.
func Plan(s Signal) Decision {
	wait := s.wait()
	switch why := s.forbidden(); {
	case why != "":
		return Decision{Reason: why}
	case s.Attempt >= s.Retry.Attempts:
		return Decision{Reason: MaxAttempts}
	case wait >= s.Left:
		return Decision{Reason: DeadlineExhausted}
	case s.BreakerOpen:
		return Decision{Reason: Open}
	case s.NoTokens:
		return Decision{Reason: RetryTokens}
	}
	return Decision{Again: true, Wait: wait}
}

// forbidden is why the failure itself allows no other try, "" if it does.
func (s Signal) forbidden() Reason {
	switch s.Fault.Class {
	case fault.ClassTransient, fault.ClassBusy:
		return ""
	case fault.ClassAmbiguous:
		// An answer about its key (it was used for another request) comes again however often it is asked.
		if s.Fault.Evidence("") == fault.SaysUp || !s.Repeatable && (s.Method == "" || !idempotent(s.Method)) {
			return UnknownOutcome
		}
		return ""
	case fault.ClassUnavailable:
		return refusedBy(s.Fault)
	case fault.ClassPermanent, fault.ClassCancelled:
		return NotTransient
	}
	return NotTransient
}

// refusedBy names our own refusals; the rest of what is unavailable waits for somebody, not for time.
func refusedBy(f fault.Fault) Reason {
	switch by := f.RefusedBy(); {
	case errors.Is(by, fault.ErrBreakerOpen):
		return Open
	case errors.Is(by, fault.ErrNoRetryTokens):
		return RetryTokens
	}
	return NotTransient
}

func (s Signal) wait() time.Duration {
	floor := max(s.Fault.RetryAfter, 0)
	n := max(s.Attempt-1, 0)
	wait := floor + time.Duration(s.Random*float64(backoff.Exponential(s.Retry.Base, s.Retry.Cap, n)))
	if wait < floor || floor > 0 && wait >= s.Left { // a Retry-After of centuries, or one that fits without the jitter
		return floor
	}
	return wait
}
