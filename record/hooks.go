package record

import (
	"time"
)

// Hooks are called by the engine when something happens, on the goroutine where it does: they must be quick and must
// not block. Any of them may be nil. Metrics are one set of hooks; the engine knows no metrics library.
//
// Info structs may grow; construct them with field names.
type Hooks struct {
	// OnSettle: a record's outcome became durable. Once a record and route.
	OnSettle func(SettleInfo)
	// OnAttempt: one run of a handler or a call ended.
	OnAttempt func(AttemptInfo)
	// OnInbox: the inbox answered for n records.
	OnInbox func(InboxInfo)
	// OnGroup: a group transaction ended.
	OnGroup func(GroupInfo)
	// OnHold: a record began or ended to wait for a dependency.
	OnHold func(HoldInfo)
	// OnDeadLetter: a dead letter was confirmed by the broker.
	OnDeadLetter func(DeadLetterInfo)
	// OnClaim: a partition was assigned, revoked or lost.
	OnClaim func(ClaimInfo)
	// OnReport: something that an operator must know. It is logged by whoever fills the hook, and by nobody else.
	OnReport func(Report)
}

// SettleInfo tells of one outcome.
type SettleInfo struct {
	Route     string
	Topic     string
	Partition int32
	Offset    int64
	Outcome   Outcome
	Attempts  int
	Age       time.Duration // since the record was handed to the stack
}

// AttemptInfo tells of one attempt. Class is "" for one that succeeded.
type AttemptInfo struct {
	Route   string
	Class   string
	Took    time.Duration
	Attempt int // 1 for the first
}

// InboxInfo tells what the inbox answered. Answer is one of dedup.Answers.
type InboxInfo struct {
	Route   string
	Answer  string
	Records int
}

// GroupInfo tells of one group transaction. Result is one of committed, rolled_back, unknown.
type GroupInfo struct {
	Route   string
	Records int
	Result  string
	Took    time.Duration
}

// HoldInfo tells of a record and its followers that wait for a dependency. Took is zero when the hold begins.
type HoldInfo struct {
	Route      string
	Dependency string
	Began      bool
	Records    int
	Took       time.Duration
}

// DeadLetterInfo tells of a confirmed dead letter.
type DeadLetterInfo struct {
	Route  string
	Topic  string // the source topic
	Reason string
	// Partition and Offset are the record's in the source topic.
	Partition int32
	Offset    int64
}

// ClaimInfo tells of a partition's ownership. Event is one of assigned, revoked, lost, stopped.
type ClaimInfo struct {
	Topic     string
	Partition int32
	Event     string
}

// Report is something that an operator must know. It never holds a payload or a secret.
type Report struct {
	// Kind names the matter, for logs, alerts and metrics: one of ReportKinds.
	Kind      string
	Route     string
	Topic     string
	Partition int32
	Offset    int64
	Age       time.Duration
	Err       error
	// Hint is what to do about it.
	Hint string
}

// Report calls OnReport if there is one; h may be nil.
func (h *Hooks) Report(r Report) {
	if h != nil && h.OnReport != nil {
		h.OnReport(r)
	}
}
