package parking

import (
	"errors"
	"fmt"
	"time"
)

// ErrFull says that a route has parked as much, or for as long, as its policy allows: nothing more is taken until some of
// it has left. Match with errors.Is; errors.As finds a *FullError with the facts.
var ErrFull = errors.New("parking is full")

// FullError is why nothing more is parked.
type FullError struct {
	// Records are parked, of at most MaxRecords.
	Records, MaxRecords int64
	// Oldest is for how long the oldest head is parked, of at most MaxAge.
	Oldest, MaxAge time.Duration
}

func (e *FullError) Error() string {
	if e.Records >= e.MaxRecords {
		return fmt.Sprintf("%s: %d records are parked, the limit is %d", ErrFull, e.Records, e.MaxRecords)
	}
	return fmt.Sprintf("%s: the oldest record is parked for %s, the limit is %s", ErrFull, e.Oldest.Round(time.Second), e.MaxAge)
}

// Is makes it an ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Hint is what to do about it.
func (e *FullError) Hint() string {
	return "the route waits until some have left: see why they fail with 'headrace parked ls', or raise MaxRecords or MaxAge of its parking.Policy"
}

// ErrNoRoute says that the inbox does not know the route: its number comes from there. Match with errors.Is.
var ErrNoRoute = errors.New("no such route in the inbox")
