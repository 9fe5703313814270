package downstream

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/fault"
)

// Budget gives a part of the time that ctx has left to something that is done under it: at most want, and never so much
// that less than reserve would be left for what comes after, a write or another call. Without a deadline around it the
// part is want. context.Cause of the new context is a *DeadlineError when its time is over.
//
// The error is a *NoTimeError when nothing is left, so that a call is not begun that could only be cut short; then
// nothing was sent. A want of 0 or less is all that ctx can give.
func Budget(ctx context.Context, want, reserve time.Duration) (context.Context, context.CancelFunc, error) {
	at, bounded := ctx.Deadline()
	if !bounded && want <= 0 {
		child, cancel := context.WithCancel(ctx)
		return child, cancel, nil
	}
	part := want
	if bounded {
		left := time.Until(at)
		if left <= max(reserve, 0) {
			return nil, nil, &NoTimeError{Left: max(left, 0), Reserve: max(reserve, 0)}
		}
		if part = left - max(reserve, 0); want > 0 {
			part = min(want, part)
		}
	}
	child, cancel := context.WithTimeoutCause(ctx, part, &DeadlineError{After: part})
	return child, cancel, nil
}

// NoTimeError reports that Budget had nothing to give, or that a call has less time than it normally takes
// (Config.NormalTime). It is fault.ErrNoTime, and ClassTransient: nothing was sent, and
// the next attempt has a deadline of its own.
type NoTimeError struct {
	// Left is what the context around has left, and Reserve what was to be left of it.
	Left, Reserve time.Duration
	// Needs is what the call normally takes, 0 if it is the reserve that there was not enough for.
	Needs time.Duration
}

func (e *NoTimeError) Error() string {
	if e.Needs > 0 {
		return fmt.Sprintf("%s: %s left, and it normally takes up to %s; begin earlier, or raise the timeout around it",
			fault.ErrNoTime, e.Left, e.Needs)
	}
	return fmt.Sprintf("%s: %s left, %s of it in reserve for what comes after; begin earlier, or raise the timeout around it",
		fault.ErrNoTime, e.Left, e.Reserve)
}

// Unwrap gives fault.ErrNoTime.
func (e *NoTimeError) Unwrap() error { return fault.ErrNoTime }

// Timeout says that it is one, to whoever asks a net.Error.
func (e *NoTimeError) Timeout() bool { return true }

// DeadlineError is why the context of a call ended: its own time was over. It is context.DeadlineExceeded. net/http
// returns it as it is.
type DeadlineError struct {
	// After is the time that the call had.
	After time.Duration
}

func (e *DeadlineError) Error() string { return fmt.Sprintf("no answer within %s", e.After) }

// Is makes it context.DeadlineExceeded.
func (e *DeadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout says that it is one, to whoever asks a net.Error.
func (e *DeadlineError) Timeout() bool { return true }

// Temporary is part of net.Error.
func (e *DeadlineError) Temporary() bool { return true }
