package fault

import "time"

// Fault is what the classifier found.
type Fault struct {
	Class Class
	// RetryAfter is a floor for the wait before the next attempt, 0 for none. It is never negative.
	RetryAfter time.Duration
	// Dependency names what is down when Class is ClassUnavailable: "database", "dead-letter-topic", a host, or a name
	// that the handler gave. Never empty then; empty for every other class.
	Dependency string
	// Rule names the branch that decided, for logs: "sqlstate 40001", "dial", "verb permanent". It has few values and
	// never holds an error's text.
	Rule string
}

// Rule is asked before the built-in rules, with the whole error or with one branch of an errors.Join; it should look
// with errors.As and errors.Is, never at texts, and be safe for concurrent use. It reports false for an error that it
// does not know.
type Rule func(err error) (Fault, bool)

// Names of the dependencies that Headrace itself knows.
const (
	Database        = "database"
	DeadLetterTopic = "dead-letter-topic"
	Kafka           = "kafka"
	// Network is down when an error says so but does not say whose.
	Network = "network"
)

// normal makes a fault of a verb or a user's rule keep what the fields' comments promise.
func (f Fault) normal() Fault {
	f.RetryAfter = max(f.RetryAfter, 0)
	switch {
	case f.Class != ClassUnavailable:
		f.Dependency = ""
	case f.Dependency == "":
		f.Dependency = Database
	}
	return f
}
