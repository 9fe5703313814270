package middleware

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// CallError is what stands on a record whose call failed or was refused: the call's error, with what was found out about
// it while its own context was at hand. Nobody classifies it again; an Apply's rules would make a timeout Transient.
type CallError struct {
	// Dependency is what was called.
	Dependency string
	// Fault is what the error means.
	Fault fault.Fault
	// Charge is whose the failure is.
	Charge downstream.Charge
	// Err is what the call returned, or a *fault.RefusedError.
	Err error

	begun   bool // not refused
	streak  downstream.Streak
	answers uint64 // of the dependency, to anybody, by then
}

func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *CallError) Unwrap() error { return e.Err }

// deadlineError is the cause with which a call's context ends. Clients hand a context's cause on as their own error
// (net/http does), so it must be recognisable as a deadline wherever it surfaces.
type deadlineError struct{ timeout time.Duration }

func (e *deadlineError) Error() string {
	return fmt.Sprintf("call took longer than its timeout of %s", e.timeout)
}
func (e *deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }
func (e *deadlineError) Timeout() bool        { return true }
func (e *deadlineError) Temporary() bool      { return true }
