package fault

import "time"

// Permanent says that err will come again however often the record is tried. nil stays nil.
func Permanent(err error) error {
	return wrap(err, Fault{Class: ClassPermanent, Rule: "verb permanent"})
}

// Transient says that nothing was executed and that a later attempt may succeed. nil stays nil.
func Transient(err error) error {
	return wrap(err, Fault{Class: ClassTransient, Rule: "verb transient"})
}

// Ambiguous says that it is unknown whether the operation was executed: it is repeated only where the route says that it may
// be, else the record is dead as unknown_outcome. nil stays nil.
func Ambiguous(err error) error {
	return wrap(err, Fault{Class: ClassAmbiguous, Rule: "verb ambiguous"})
}

// Busy says that another delivery owns what the attempt needs at this moment: the record is tried again soon, free of
// charge and for as long as it takes, and its key waits. nil stays nil.
func Busy(err error) error { return wrap(err, Fault{Class: ClassBusy, Rule: "verb busy"}) }

// RetryAfter is Transient with a floor for the wait: the next attempt starts no earlier than d from now. d <= 0 is no
// floor. nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	return wrap(err, Fault{Class: ClassTransient, RetryAfter: max(d, 0), Rule: "verb retry after"})
}

// Unavailable says that dependency is down and the record is not at fault: it is held, free of charge, until the
// dependency is back, and its route with it, of which one record at a time is tried (of the dependency that a route calls
// only while it answers nobody else). Say Transient or Park of what is the record's own. An empty dependency is Database;
// names should be few. nil stays nil.
func Unavailable(err error, dependency string) error {
	return wrap(err, Fault{Class: ClassUnavailable, Dependency: dependency, Rule: "verb unavailable"})
}

// Say is the verb for a fault that is already known: whoever classified err hands its meaning on. nil stays nil.
func Say(err error, f Fault) error { return wrap(err, f) }

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
// settles as skipped. Joined with another error it does not count: a Skip hides no failure.
func Skip(reason string) error { return &SkipError{Reason: reason} }

// ParkError is what Park returns: try again after Delay, which is never negative, out of the partition's way.
type ParkError struct {
	Err   error
	Delay time.Duration
}

func (e *ParkError) Error() string { return e.Err.Error() }
func (e *ParkError) Unwrap() error { return e.Err }

// Park says that the record is to wait d in Postgres and be tried again then, as one of the rounds of its parking.Policy;
// d <= 0 leaves the wait to that. On a route that does not park it is RetryAfter, but holds its own key alone. nil stays
// nil.
func Park(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &ParkError{Err: err, Delay: max(d, 0)}
}

// Said reports whether err carries a verb anywhere, so that whoever would judge it by where it came from leaves it alone.
// A panic is no verb.
func Said(err error) bool {
	for _, e := range outermost(err) {
		if _, panicked := e.(*PanicError); !panicked { //nolint:errorlint // the verb itself, not what it wraps
			return true
		}
	}
	return false
}

// AsSkip finds the SkipError that err is, through any wrap. It is false if a verb wraps it, and if anything but skips is
// joined with it.
func AsSkip(err error) (*SkipError, bool) {
	head, branches := chain(err)
	for _, e := range head {
		if _, ok := verb(e); ok {
			skip, ok := e.(*SkipError) //nolint:errorlint // the verb itself, not what it wraps
			return skip, ok
		}
	}
	return skipInAll(branches)
}

func skipInAll(branches []error) (*SkipError, bool) {
	var found *SkipError
	for _, err := range branches {
		skip, ok := AsSkip(err)
		if !ok {
			return nil, false
		}
		if found == nil {
			found = skip
		}
	}
	return found, found != nil
}

// AsPark finds the ParkError that decides about err: the outermost verb, or, in a Join, the only one.
func AsPark(err error) (*ParkError, bool) {
	verbs := outermost(err)
	if len(verbs) != 1 {
		return nil, false
	}
	park, ok := verbs[0].(*ParkError) //nolint:errorlint // the verb itself, not what it wraps
	return park, ok
}

// outermost gives the verbs of err that no other verb wraps: one at most, or one for each branch of a Join.
func outermost(err error) []error {
	head, branches := chain(err)
	for _, e := range head {
		if _, ok := verb(e); ok {
			return []error{e}
		}
	}
	var verbs []error
	for _, branch := range branches {
		verbs = append(verbs, outermost(branch)...)
	}
	return verbs
}

// verb gives what err itself says, not what it wraps. A panic is final as a verb is: what was panicked with may be any
// error, but it did not come back to say something about the record.
func verb(err error) (finding, bool) {
	switch e := err.(type) { //nolint:errorlint // one step of a walk
	case *verdict:
		return finding{e.fault, said}, true
	case *ParkError:
		return finding{Fault{Class: ClassTransient, RetryAfter: e.Delay, Rule: "verb park"}, said}, true
	case *SkipError:
		return finding{level: skipped}, true
	case *PanicError:
		return finding{Fault{Class: ClassPermanent, Rule: "panic"}, said}, true
	}
	return finding{}, false
}

// verbIn finds the outermost.
func verbIn(head []error) (finding, bool) {
	for _, err := range head {
		if f, ok := verb(err); ok {
			return f, true
		}
	}
	return finding{}, false
}
