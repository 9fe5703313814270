package fault

import (
	"context"
	"time"
)

// Fault is what the classifier found.
type Fault struct {
	Class Class
	// RetryAfter is a floor for the wait before the next attempt, 0 for none.
	RetryAfter time.Duration
	// Dependency names what is down when Class is ClassUnavailable: "database", "dead-letter-topic", or a name that the
	// handler gave. "" is taken as "database".
	Dependency string
	// Rule names the branch that decided, for logs: "sqlstate 40001", "dial refused", "verb permanent".
	Rule string
}

// Rule is asked before the built-in rules. It reports false for an error that it does not know.
type Rule func(err error) (Fault, bool)

// Classifier knows what errors mean. The zero value has the built-in rules only. It is safe for concurrent use.
type Classifier struct {
	// Rules are asked in order, before the built-in ones; the first that knows the error decides.
	Rules []Rule
}

// Names of the dependencies that Headrace itself has.
const (
	Database        = "database"
	DeadLetterTopic = "dead-letter-topic"
)

// Classify says what err, the end of an attempt that ran under ctx, means. Whether the delivery ended is judged by ctx
// and not by err: a handler may fail with the context.Canceled of a child that it cancelled itself. A nil err is a
// programmer's error and is ClassPermanent.
func (c *Classifier) Classify(ctx context.Context, err error) Fault {
	panic("being built")
}
