package dlq

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTooLarge reports a record that does not fit into its dead letter topic, even with the smallest envelope. Match with
// errors.Is; errors.As finds the *TooLargeError with the numbers.
var ErrTooLarge = errors.New("record is too large for its dead letter topic")

// TooLargeError is a record that does not fit. It is held until the topic takes it.
type TooLargeError struct {
	// Source is where the record was read.
	Source Coordinates
	// Topic is the dead letter topic.
	Topic string
	// Original and Letter are the sizes in bytes, uncompressed, of the record as it was read and with the smallest
	// envelope. The broker compares the compressed size, which cannot be told before.
	Original, Letter int
	// Err is the broker's answer.
	Err error
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s of %d bytes is too large for %q with the smallest envelope, %d bytes: %v",
		e.Source, e.Original, e.Topic, e.Letter, e.Err)
}

// Is matches ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// Unwrap gives the broker's answer.
func (e *TooLargeError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *TooLargeError) Hint() string {
	return fmt.Sprintf("set max.message.bytes of topic %s to at least %d (and replica.fetch.max.bytes of the brokers); "+
		"the record is held until then", e.Topic, e.Original+MaxEnvelope)
}

// OwnInputError is a dead letter that would go to the topic its record was read from, and be read again for ever.
type OwnInputError struct {
	// Source is where the record was read.
	Source Coordinates
}

func (e *OwnInputError) Error() string {
	return fmt.Sprintf("the dead letter of %s would go to the topic that it was read from", e.Source)
}

// Hint says what to do.
func (e *OwnInputError) Hint() string {
	return fmt.Sprintf("give the route on %s a dead letter topic of its own", e.Source.Topic)
}

// NoRecordError is a place at which no record can be read.
type NoRecordError struct {
	// At is the place.
	At Coordinates
	// Err says why: there is no such partition, the record is deleted, not written yet, or was never one.
	Err error
}

func (e *NoRecordError) Error() string { return fmt.Sprintf("read %s: %v", e.At, e.Err) }

// Unwrap gives Err.
func (e *NoRecordError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *NoRecordError) Hint() string {
	return "check partition and offset: reports, the log and dead letters name a record as topic/partition/offset"
}

// Name is something that a letter must say to be replayed.
type Name string

// The names. ReplayConfig has a field for each, for letters that do not say it.
const (
	SourceTopic   Name = "source topic"   // ReplayConfig.Source
	ConsumerGroup Name = "consumer group" // ReplayConfig.Group
	RouteName     Name = "route"          // ReplayConfig.Route
)

// NamelessError is a letter that does not say to whom it is to be replayed; nor does ReplayConfig.
type NamelessError struct {
	// Letter is where it stands.
	Letter Coordinates
	// Format is whose letter it is.
	Format Format
	// Lacks is what it does not name.
	Lacks Name
}

func (e *NamelessError) Error() string {
	return fmt.Sprintf("%s (%s) names no %s", e.Letter, e.Format, e.Lacks)
}

// Problem is something about a dead letter topic that would lose letters or block the source.
type Problem struct {
	// Source is the topic whose dead letters are meant, Topic where they go.
	Source, Topic string
	// What is wrong, with the value found.
	What string
	// Fix is what to do about it.
	Fix string
}

func (p Problem) String() string {
	return fmt.Sprintf("%s -> %s: %s; %s", p.Source, p.Topic, p.What, p.Fix)
}

// CheckError holds everything that Check found, so that all of it can be put right at once.
type CheckError struct{ Problems []Problem }

func (e *CheckError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	if len(lines) == 1 {
		return "dead letter topic: " + lines[0]
	}
	return fmt.Sprintf("dead letter topics, %d problems:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// Hint is the fixes, a line each.
func (e *CheckError) Hint() string {
	fixes := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		fixes[i] = p.Fix
	}
	return strings.Join(fixes, "\n")
}

// NoReplayTopicError is a replay topic that does not exist. It is made by whoever reads it: letters sent into a topic
// that nobody reads would look replayed.
type NoReplayTopicError struct {
	// Topic is the replay topic, Group the consumer group that is to read it.
	Topic, Group string
	// Err matches kafka.ErrUnknownTopic.
	Err error
}

func (e *NoReplayTopicError) Error() string {
	return fmt.Sprintf("replay topic %q does not exist: the consumers of group %q make it when they start, with "+
		"Config.CreateDeadLetterTopics; to make it now, set ReplayConfig.Create (--create-topic)", e.Topic, e.Group)
}

// Unwrap gives the cluster's answer.
func (e *NoReplayTopicError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *NoReplayTopicError) Hint() string {
	return fmt.Sprintf("start a consumer of group %s with Config.CreateDeadLetterTopics, or replay with --create-topic", e.Group)
}

// UnknownRouteError is a letter for a route that ReplayConfig.Known does not know: nobody would take it up.
type UnknownRouteError struct{ Group, Route string }

func (e *UnknownRouteError) Error() string {
	return fmt.Sprintf("the database knows no route %q of consumer group %q: nobody would take it up", e.Route, e.Group)
}

// Hint says what to do.
func (e *UnknownRouteError) Hint() string {
	return "was the route renamed or misspelt? ReplayConfig.ToRoute (--to-route) sends the letters of one route to another"
}
