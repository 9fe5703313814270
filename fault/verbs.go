package fault

import (
	"errors"
	"time"
)

// Permanent says that err will come again however often the record is tried. nil stays nil.
func Permanent(err error) error { return wrap(err, Fault{Class: ClassPermanent, Rule: "verb permanent"}) }

// Transient says that nothing was executed and that a later attempt may succeed. nil stays nil.
func Transient(err error) error { return wrap(err, Fault{Class: ClassTransient, Rule: "verb transient"}) }

// Ambiguous says that it is unknown whether the operation was executed. nil stays nil.
func Ambiguous(err error) error { return wrap(err, Fault{Class: ClassAmbiguous, Rule: "verb ambiguous"}) }

// Busy says that another delivery owns what the attempt needs at this moment. nil stays nil.
func Busy(err error) error { return wrap(err, Fault{Class: ClassBusy, Rule: "verb busy"}) }

// RetryAfter is Transient with a floor for the wait: the next attempt starts no earlier than d from now. d <= 0 is no
// floor. nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	return wrap(err, Fault{Class: ClassTransient, RetryAfter: max(d, 0), Rule: "verb retry after"})
}

// Unavailable says that dependency is down and the record is not at fault: it is held, free of charge, until the
// dependency is back. nil stays nil.
func Unavailable(err error, dependency string) error {
	return wrap(err, Fault{Class: ClassUnavailable, Dependency: dependency, Rule: "verb unavailable"})
}

func wrap(err error, f Fault) error {
	if err == nil {
		return nil
	}
	return &verdict{err: err, fault: f}
}

// verdict is an error with its meaning.
type verdict struct {
	err   error
	fault Fault
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// SkipError is what Skip returns: not a failure, but the decision that this record has no effect.
type SkipError struct{ Reason string }

func (e *SkipError) Error() string { return "skipped: " + e.Reason }

// Skip says that the record is to have no effect. What the handler wrote is undone, the inbox row stays, and the record
// settles as skipped.
func Skip(reason string) error { return &SkipError{Reason: reason} }

// ParkError is what Park returns: try again after Delay, out of the partition's way.
type ParkError struct {
	Err   error
	Delay time.Duration
}

func (e *ParkError) Error() string { return e.Err.Error() }
func (e *ParkError) Unwrap() error { return e.Err }

// Park says that the record is to wait d in Postgres and be tried again then. nil stays nil.
func Park(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &ParkError{Err: err, Delay: d}
}

// AsSkip finds a SkipError in err.
func AsSkip(err error) (*SkipError, bool) {
	var s *SkipError
	ok := errors.As(err, &s)
	return s, ok
}
