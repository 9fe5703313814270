package dlq

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/headrace/headrace/record"
)

// Suffix makes the default name of a dead letter topic: "orders.dlq" for "orders".
const Suffix = ".dlq"

// DefaultTopic is the dead letter topic of a source that names no other.
func DefaultTopic(source string) string { return source + Suffix }

// ReplayTopic is where the dead letters of a source topic are replayed to for a consumer group: "orders.billing.replay".
// Only that group's routes read it, and only Replay writes to it.
//
// A consumer group may have any name, a topic may not: of one that has other characters than letters, digits, '.', '_'
// and '-', those become '_', and a hash of the whole name is added, so that "eu/billing" and "eu:billing" stay two.
func ReplayTopic(source, group string) string { return source + "." + namable(group) + ".replay" }

func namable(group string) string {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return r
		}
		return '_'
	}, group)
	if clean == group {
		return group
	}
	sum := sha256.Sum256([]byte(group))
	return clean + "-" + hex.EncodeToString(sum[:4])
}

// isDeadLetterTopic says whether a topic is named as a dead letter topic.
func isDeadLetterTopic(topic string) bool { return strings.HasSuffix(topic, Suffix) }

// Reason is why a record is dead.
type Reason string

// The reasons.
const (
	// Permanent: it would fail again however often it is tried.
	Permanent Reason = "permanent"
	// Exhausted: its attempts or its budget are spent.
	Exhausted Reason = "exhausted"
	// UnknownOutcome: a call was sent whose outcome nobody knows, and repeating it is not safe.
	UnknownOutcome Reason = "unknown_outcome"
	// Undecodable: its bytes are not what the route expects.
	Undecodable Reason = "undecodable"
	// Panic: its handler panicked; the stack is in the letter.
	Panic Reason = "panic"
	// IDConflict: another record with the same id has another value.
	IDConflict Reason = "id_conflict"
	// CrashLoop: the process died three times while it was being handled.
	CrashLoop Reason = "crash_loop"
	// Manual: an operator said so.
	Manual Reason = "manual"
)

// Reasons are all reasons.
var Reasons = [...]Reason{Permanent, Exhausted, UnknownOutcome, Undecodable, Panic, IDConflict, CrashLoop, Manual}

// Letter is a record and why it is dead.
type Letter struct {
	// Record is the record as it was delivered. Required.
	Record *record.Record
	// Reason is why it is dead. Required.
	Reason Reason
	// Class is what the last error meant, fault.Class's name.
	Class string
	// Err is the last error. A *fault.PanicError in it gives the letter its stack.
	Err error
	// RedactError, if not nil, gives the text that the letter has of Err. What Message replaces is replaced in it too.
	RedactError func(error) string
	// Attempts is how many were charged in this delivery.
	Attempts int
	// FirstFailed and LastFailed are when charged attempts failed, zero if none did.
	FirstFailed, LastFailed time.Time
	// History is what became of the record before this delivery, where it was parked: a line a round. At most 4 KiB of it are
	// kept.
	History string
	// Group is the consumer group. Defaults to the Writer's.
	Group string
	// Route is the route for which the record is dead; others of the group may have effected it.
	Route string
	// Topic is the dead letter topic. Defaults to what WriterConfig.Topic says.
	Topic string
}
