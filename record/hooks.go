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
	// OnCall: one call to a dependency ended, or was refused.
	OnCall func(CallInfo)
	// OnBreaker: a dependency's circuit breaker changed its state.
	OnBreaker func(BreakerInfo)
	// OnForward: a forwarder of the outbox has sent events and knows what became of them.
	OnForward func(ForwardInfo)
	// OnOutbox: a forwarder has looked how large the outbox is. Zero once another forwarder does.
	OnOutbox func(OutboxInfo)
	// OnParking: it was looked how much a route has parked.
	OnParking func(ParkingInfo)
	// OnRetry: a call outside of a route was tried again, or was not although it had failed, or had succeeded in the end.
	OnRetry func(RetryInfo)
	// OnDegraded: a read was answered with a substitute, because its dependency failed.
	OnDegraded func(DegradedInfo)
	// OnCallInTransaction: a call was made, or refused, under a context that carries the inbox's transaction. Only
	// Dependency is set.
	OnCallInTransaction func(CallInfo)
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
	// Replay says that the record was read from the replay topic: a dead letter that was replayed.
	Replay bool
	Age    time.Duration // since the record was handed to the stack
	// Unparked says that parking delivered the record, and Round how often it had failed before: an Outcome of Parked is one
	// round more.
	Unparked bool
	Round    int
}

// AttemptInfo tells of one attempt. Class is "" for one that succeeded, else what the failure means, as fault.Class spells
// it. Took is the time of this one run.
type AttemptInfo struct {
	Route   string
	Class   string
	Took    time.Duration
	Attempt int // 1 for the first
}

// InboxInfo tells what the inbox answered. Answer is one of dedup.Answers, and Records how many had it.
type InboxInfo struct {
	Route   string
	Answer  string
	Records int
}

// GroupInfo tells of one group transaction. Result is one of committed, rolled_back, unknown. Records is how many ran in it,
// and Took its whole time.
type GroupInfo struct {
	Route   string
	Records int
	Result  string
	Took    time.Duration
}

// HoldInfo tells of a record and its followers that wait for a dependency, from the first failure to the end, the tries in
// between included. Began says which end of it this is. Records counts the record and its followers. Took is zero when the
// hold begins. Done says of its end that what was waited for is there; else the delivery is over, and its next owner waits.
type HoldInfo struct {
	Route      string
	Dependency string
	Began      bool
	Done       bool
	Records    int
	Took       time.Duration
	// Class is what the failure of the first of them means, as fault.Class spells it: "" where none has failed, because the
	// dependency was known to be down.
	Class string
	// Err is why they began to wait: what the first of them failed with, or for what the dependency is known to be down. At
	// the end it is the same. Its text is redacted; nil where nobody knows.
	Err error
}

// DeadLetterInfo tells of a confirmed dead letter.
type DeadLetterInfo struct {
	Route  string
	Topic  string // the source topic
	Reason string
	// Partition and Offset are the record's in the source topic.
	Partition int32
	Offset    int64
	// Message is the error's text as the letter has it: what looks like a secret is replaced.
	Message string
	// Fingerprint is the letter's: the same for errors that differ only in numbers, ids and quoted values.
	Fingerprint string
}

// CallInfo tells of one call to a dependency.
type CallInfo struct {
	Dependency string
	// Route is "" for a call outside of a route.
	Route string
	// Outcome is one of CallOutcomes.
	Outcome string
	// Class is what the failure means, "" for a success.
	Class string
	// Probe says that the call was the one that a half-open breaker lets through.
	Probe bool
	// Took is the call's time, without waits for its turn; 0 for one that was refused.
	Took time.Duration
}

// CallOutcomes are the outcomes of calls: succeeded; answered, a failure that is the request's (most of 4xx); failed, one
// that is the dependency's; refused, by the breaker, the bulkhead, the budget or for want of retry tokens, so that
// nothing was sent; cancelled by the caller.
var CallOutcomes = [...]string{CallSucceeded, CallAnswered, CallFailed, CallRefused, CallCancelled}

// The outcomes of calls.
const (
	CallSucceeded = "succeeded"
	CallAnswered  = "answered"
	CallFailed    = "failed"
	CallRefused   = "refused"
	CallCancelled = "cancelled"
)

// RetryInfo tells of one further try, or of why there is none.
type RetryInfo struct {
	Dependency string
	// Outcome is RetryRepeated, RetrySucceeded, or one of downstream.Reasons.
	Outcome string
	// Attempt is the number of the try that begins (RetryRepeated), or that was the last one.
	Attempt int
}

// The outcomes of further tries, beside downstream.Reasons.
const (
	// RetryRepeated: another try begins.
	RetryRepeated = "retry"
	// RetrySucceeded: a further try has brought success.
	RetrySucceeded = "success"
)

// DegradedInfo tells of a read that got a substitute.
type DegradedInfo struct {
	Dependency string
	// Operation is what was read, as downstream.FallbackConfig names it.
	Operation string
	// Route is "" outside of a route.
	Route string
	// Source is one of DegradedSources, and Reason one of DegradedReasons.
	Source, Reason string
	// Age is that of a value that was known before, 0 for the others.
	Age time.Duration
}

// DegradedSources are what a substitute can come from: the last value that is known, a part of it that is had elsewhere, a
// default.
var DegradedSources = [...]string{DegradedLastKnown, DegradedPartial, DegradedDefault}

// The sources of substitutes.
const (
	DegradedLastKnown = "last_known"
	DegradedPartial   = "partial"
	DegradedDefault   = "default"
)

// DegradedReasons are why a read gets a substitute: it was made and failed by the dependency's fault; or it was not made,
// because the breaker is open or no place is free.
var DegradedReasons = [...]string{DegradedFailed, DegradedOpen, DegradedFull}

// The reasons for substitutes.
const (
	DegradedFailed = "failed"
	DegradedOpen   = "breaker_open"
	DegradedFull   = "bulkhead_full"
)

// BreakerInfo tells of a breaker's new state.
type BreakerInfo struct {
	Dependency string
	// From and To are of BreakerStates.
	From, To string
	// Open is for how long the breaker let nothing through, half-open included, when To is closed.
	Open time.Duration
	// Err is the failure with which it opened, when To is open: the last one that counted, or the probe's. Its text is
	// redacted. nil if nobody has said why the call failed.
	Err error
	// Failures are the calls that had failed by the dependency's fault when a closed breaker opened, of the Requests that had
	// ended within Window and say something of it; 0 for every other change.
	Failures, Requests int
	// MinRequests and FailureRatio are what opens it: so many Requests at least, of which this part are Failures. 0 for a
	// breaker with a rule of its own (Trip), and for every other change.
	MinRequests  int
	FailureRatio float64
	// Window is for how long a call counts. 0 for every other change.
	Window time.Duration
}

// BreakerStates are the states of a circuit breaker.
var BreakerStates = [...]string{BreakerClosed, BreakerHalfOpen, BreakerOpen}

// The states of a circuit breaker.
const (
	BreakerClosed   = "closed"
	BreakerHalfOpen = "half_open"
	BreakerOpen     = "open"
)

// ClaimInfo tells of a partition's ownership. Event is one of assigned, revoked, lost, stopped.
type ClaimInfo struct {
	Topic     string
	Partition int32
	Event     string
}

// ForwardInfo tells of events that were sent together to one topic.
type ForwardInfo struct {
	// Confirmed are those that all in-sync replicas have. Failed are sent again; some of them may have been written.
	Confirmed, Failed int
}

// ParkingInfo tells what a route has parked, of all processes together.
type ParkingInfo struct {
	Route   string
	Records int64
	// Oldest is for how long the oldest head is parked, and Late for how long the first key is due that nobody has claimed.
	Oldest, Late time.Duration
}

// OutboxInfo tells what waits in the outbox.
type OutboxInfo struct {
	Rows int64
	// Bytes are those of the records that the rows are to become.
	Bytes int64
	// Oldest is the age of the oldest event, 0 without one.
	Oldest time.Duration
	// Snapshot is the age of the oldest transaction that anybody has open in the database: while it is open, what was
	// deleted cannot be cleared away. 0 if the role may not see those of others.
	Snapshot time.Duration
}

// Report is something that an operator must know. It never holds a payload or a secret.
type Report struct {
	// Kind names the matter, for logs, alerts and metrics: one of ReportKinds.
	Kind string
	// Route and Topic are whose it is, "" where it is nobody's in particular.
	Route, Topic string
	// Partition and Offset are the record's, -1 for none. They mean nothing without a Topic.
	Partition int32
	Offset    int64
	// Age is for how long it has been so, 0 where that is not known.
	Age time.Duration
	// Err is what was found, nil for none.
	Err error
	// Lost are the offsets that the matter is about, of the kinds offset_out_of_range and topic_recreated. Its Count is 0 for
	// none.
	Lost Lost
	// Hint is what to do about it.
	Hint string
}

// Lost is a range of offsets. Not each of them need have been a record.
type Lost struct{ First, Last, Count int64 }

// LostRange is from first to the offset before end; nothing if that is none, or first is unknown (-1).
func LostRange(first, end int64) Lost {
	if first < 0 || end <= first {
		return Lost{}
	}
	return Lost{First: first, Last: end - 1, Count: end - first}
}

// Report calls OnReport if there is one; h may be nil.
func (h *Hooks) Report(r Report) {
	if h != nil && h.OnReport != nil {
		h.OnReport(r)
	}
}
