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

func refused(head []error, _ bool) (Fault, bool) {
	f := Fault{Class: ClassUnavailable, Dependency: Network}
	if e, ok := first[*RefusedError](head); ok {
		f.Dependency, f.RetryAfter = orNetwork(e.Dependency), e.RetryAfter
	}
	switch {
	case is(head, ErrBreakerOpen):
		f.Rule = "breaker open"
	case is(head, ErrBulkheadFull):
		f.Rule = "bulkhead full"
	case is(head, ErrNoRetryTokens):
		f.Rule = "no retry tokens"
	case has[*RefusedError](head):
		f.Rule = "refused"
	default:
		return Fault{}, false
	}
	return f, true
}
