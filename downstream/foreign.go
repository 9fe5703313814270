package downstream

import (
	"context"
	"errors"
)

// ForeignError is the failure of a call to one dependency within a call to another: of a route, or of Do. It says nothing
// of the one around it, and whose fault it is the dependency that was called has said. Do and Transport return it, and
// Check of their answers does.
type ForeignError struct {
	// Dependency is what was called.
	Dependency string
	// Charge is what the end of that call said.
	Charge Charge
	// Answers is how often it had answered by then, whomever.
	Answers uint64
	// Err is the failure.
	Err error
}

func (e *ForeignError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *ForeignError) Unwrap() error { return e.Err }

// Foreign finds in err the failure of a call to another dependency than d.
func (d *Dependency) Foreign(err error) (*ForeignError, bool) {
	var e *ForeignError
	ok := errors.As(err, &e) && e.Dependency != d.cfg.Name
	return e, ok
}

// mark says of err, the failure of a call to d under ctx, that it is d's, if ctx is of a call to another one.
func (d *Dependency) mark(ctx context.Context, err error, charge Charge) error {
	if err == nil || !within(ctx) {
		return err
	}
	if _, already := d.Foreign(err); already {
		return err
	}
	return &ForeignError{Dependency: d.cfg.Name, Charge: charge, Answers: d.Answers(), Err: err}
}

// within says that ctx is of a call: of a route, or of Do.
func within(ctx context.Context) bool {
	if _, ok := PermitFrom(ctx); ok {
		return true
	}
	_, ok := ctx.Value(countedKey{}).(*Dependency)
	return ok
}

type seriesKey struct{}

// markAnswer is mark for what came of an answer, whose series has ended.
func markAnswer(ctx context.Context, err error) error {
	if s, ok := ctx.Value(seriesKey{}).(*series); ok {
		return s.call.d.mark(ctx, err, Charge(s.charge.Load())) //nolint:gosec // it was one
	}
	return err
}
