package record

import (
	"context"
	"errors"
)

// ErrNotRun stands on a record that was not attempted because one it must stay behind failed, or because its group was
// cut. It costs no attempt; the record runs later, in order.
var ErrNotRun = errors.New("not run: another record of its domain or group comes first")

// ErrNoRecords reports a message that carries no records of ours, or whose records were lost on the way by something
// that copied the message without its context. Match with errors.Is.
var ErrNoRecords = errors.New("message carries no records")

// The causes with which a message's context ends: context.Cause tells which. Each is a context.Canceled to errors.Is.
var (
	// ErrRevoked: the partition went to another member of the consumer group.
	ErrRevoked error = &endError{"partition revoked"}
	// ErrLost: the partition was lost without notice (session expired, fenced): somebody else may already have it.
	ErrLost error = &endError{"partition lost"}
	// ErrStopping: this process is stopping.
	ErrStopping error = &endError{"consumer stopping"}
)

// endError is how a claim ends. Clients hand a context's cause on as their own error (net/http does), so it must be
// recognisable as a cancellation, and as no timeout, wherever it surfaces.
type endError struct{ text string }

func (e *endError) Error() string        { return e.text }
func (e *endError) Is(target error) bool { return target == context.Canceled }
func (e *endError) Timeout() bool        { return false }
func (e *endError) Temporary() bool      { return false }
