package fault

import (
	"errors"
	"time"
)

// Why something of ours refused to begin: match a RefusedError with errors.Is.
var (
	// ErrBreakerOpen: the dependency's circuit breaker is open.
	ErrBreakerOpen = errors.New("circuit breaker open")
	// ErrBulkheadFull: as many calls as are allowed are in flight.
	ErrBulkheadFull = errors.New("bulkhead full")
	// ErrNoRetryTokens: the retries that a failing dependency is granted are spent.
	ErrNoRetryTokens = errors.New("no retry tokens left")
	// ErrNoTime: the deadline around the call leaves no time for it. No dependency is at fault.
	ErrNoTime = errors.New("no time left for the call")
)

// RefusedError reports that a call was not begun, for the dependency's sake. It is ClassUnavailable: nothing was sent,
// and the record is not at fault.
type RefusedError struct {
	// Dependency is whose breaker, bulkhead or retry tokens it was.
	Dependency string
	// Reason is one of ErrBreakerOpen, ErrBulkheadFull and ErrNoRetryTokens.
	Reason error
	// RetryAfter is when it may be worth asking again (a breaker's time until half-open), 0 if unknown.
	RetryAfter time.Duration
}

func (e *RefusedError) Error() string { return e.Dependency + ": " + e.Reason.Error() }

// Unwrap gives Reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// The rules of what was refused.
const (
	ruleBreakerOpen = "breaker open"
	ruleBulkhead    = "bulkhead full"
	ruleNoTokens    = "no retry tokens"
	ruleRefused     = "refused"
	ruleNoTime      = "no time left"
)

// Refused says that something of ours refused to begin: nothing was sent, so the failure tells nothing of a dependency.
func (f Fault) Refused() bool {
	switch f.Rule {
	case ruleBreakerOpen, ruleBulkhead, ruleNoTokens, ruleRefused, ruleNoTime:
		return true
	}
	return false
}

// RefusedBy is ErrBreakerOpen, ErrBulkheadFull, ErrNoRetryTokens or ErrNoTime if that is why nothing was begun; else nil.
func (f Fault) RefusedBy() error {
	switch f.Rule {
	case ruleBreakerOpen:
		return ErrBreakerOpen
	case ruleBulkhead:
		return ErrBulkheadFull
	case ruleNoTokens:
		return ErrNoRetryTokens
	case ruleNoTime:
		return ErrNoTime
	}
	return nil
}

func refused(head []error, _ bool) (Fault, bool) {
	// What is out of time is no dependency's fault: a hold would wait for one that is up. The next attempt has a time of
	// its own, and one that never has enough is a record, or a configuration, that somebody must look at.
	if is(head, ErrNoTime) {
		return Fault{Class: ClassTransient, Rule: ruleNoTime}, true
	}
	f := Fault{Class: ClassUnavailable, Dependency: Network}
	if e, ok := first[*RefusedError](head); ok {
		f.Dependency, f.RetryAfter = orNetwork(e.Dependency), e.RetryAfter
	}
	switch {
	case is(head, ErrBreakerOpen):
		f.Rule = ruleBreakerOpen
	case is(head, ErrBulkheadFull):
		f.Rule = ruleBulkhead
	case is(head, ErrNoRetryTokens):
		f.Rule = ruleNoTokens
	case has[*RefusedError](head):
		f.Rule = ruleRefused
	default:
		return Fault{}, false
	}
	return f, true
}
