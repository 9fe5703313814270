package idempotency

import "time"

// RequestInfo tells of a keyed request that is over. It may grow; construct it with field names.
type RequestInfo struct {
	Route string
	// Outcome is one of Outcomes.
	Outcome string
	// Err is what went wrong on our side; nil for most.
	Err  error
	Took time.Duration
}

// Outcomes are what may become of a request.
var Outcomes = [...]string{Executed, Released, Replayed, InProgress, Unknown, Mismatched, Refused, Failed, Lost, Panicked}

// The outcomes of requests.
const (
	// Executed: the handler ran, and its answer is stored.
	Executed = "executed"
	// Released: the handler ran, and its answer is not the key's: the next request runs.
	Released = "released"
	// Replayed: the stored answer was given.
	Replayed = "replayed"
	// InProgress: 409, another request with the key is running.
	InProgress = "in_progress"
	// Unknown: of External, nobody knows what became of the key. An operator must know of these.
	Unknown = "unknown"
	// Mismatched: 422, the key came with another request before.
	Mismatched = "mismatched"
	// Refused: 400, 401 or 413; nothing was asked of the database.
	Refused = "refused"
	// Failed: the transaction was not committed, or did not begin.
	Failed = "failed"
	// Lost: the reply to COMMIT was lost, or the handler ended its transaction, or an answer of External could not be
	// stored.
	Lost = "lost"
	// Panicked: the handler panicked: in Tx mode nothing was done; of External the key is unknown.
	Panicked = "panicked"
)
