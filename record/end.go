package record

import "context"

// endError is how a claim ends. Clients hand a context's cause on as their own error (net/http does), so it must be
// recognisable as a cancellation, and as no timeout, wherever it surfaces.
type endError struct{ text string }

func (e *endError) Error() string        { return e.text }
func (e *endError) Is(target error) bool { return target == context.Canceled }
func (e *endError) Timeout() bool        { return false }
func (e *endError) Temporary() bool      { return false }
