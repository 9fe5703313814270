package record

import (
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Header is one header of a record. Names may repeat, their order counts, and a nil Value differs from an empty one.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record for one route, on its way to its outcome.
//
// Its data is what Kafka delivered, byte for byte, and is read-only for everybody: a handler gets copies or must not
// write to them. The fields below it are written by the layer named there, on the goroutine that runs the record, and
// are handed from layer to layer by a call's return; only its methods may be called from any
// goroutine.
type Record struct {
	// Topic, Partition and Offset are where the record was read.
	Topic     string
	Partition int32
	Offset    int64
	// TopicID is the topic's id: a topic that was deleted and created again has another.
	TopicID uuid.UUID
	// Follows is the offset of the record that came before this one in its claim. It is less than Offset-1 where the log has
	// gaps, of compaction and of transactions, and Offset-1 for the first record of a claim.
	Follows int64
	// LeaderEpoch is the partition leader's epoch when the record was written, -1 if unknown.
	LeaderEpoch int32
	// Timestamp is the record's own, milliseconds as Kafka stores it.
	Timestamp time.Time
	// Key is nil for a record without one; an empty key is a key.
	Key []byte
	// Value is nil for a tombstone.
	Value []byte
	// Headers are in order, with duplicates and nil values.
	Headers []Header
	// Replay says that the record was read from the consumer group's replay topic, the only place whose records may
	// take over a dead row of the inbox.
	Replay bool
	// Letter is the envelope of the dead letter that a replayed record was, a *dlq.Envelope, nil for any other record.
	// The decode layer takes it off Headers, which are the original ones from then on.
	Letter any
	// Parked is what parking knows of a record that it delivers, a *parking.Trial, nil for one that comes from its topic.
	Parked any

	// Identity is set once a delivery, before anything may change the value (decode layer).
	Identity Identity
	// Event is the decoded value, a pointer to the route's type (decode layer).
	Event any
	// Reply is the answer of the route's call; it stays for the delivery, so that a failed Apply does not call again
	// (call layer).
	Reply any

	// Err is why the record is not settled: nil, ErrNotRun, or what its last attempt ended with (every layer).
	Err error
	// Attempts counts the charged failures of this delivery (retry layer).
	Attempts int
	// Spent is the part of the record's budget that is gone: the time of its attempts and back-offs. Holds, waits
	// behind another record and a writer's queue are not in it (inbox and call add attempts, retry adds back-offs).
	Spent time.Duration
	// FirstFailed and LastFailed are when a charged attempt failed, zero if none did (retry layer).
	FirstFailed, LastFailed time.Time

	// Span is the record's tracing span (observe layer).
	Span any
	// Seat belongs to the owner: where the record sits in its claim.
	Seat any

	owner   Owner
	watcher Watcher
	soft    <-chan struct{}
	domain  string
	outcome atomic.Uint32
	began   atomic.Int64 // nanoseconds since epoch, 0: not running
	attempt atomic.Int32
}

// Identity is by what the inbox knows a record.
type Identity struct {
	// ID is the identity as the producer wrote it, or "topic-id/partition/offset". Never empty once set.
	ID string
	// Key is ID as the inbox stores it: ID itself if it is a UUID, else a UUIDv8 of its SHA-256.
	Key uuid.UUID
	// ValueHash is of the value as it was delivered: the same identity with another hash is a conflict.
	ValueHash int64
	// Coordinates is a hash of topic id, partition and offset: the same identity with the same coordinates is this
	// very record seen again.
	Coordinates int64
	// Place is what the inbox stores a record under whose own identity it cannot use: where the record was first read, which
	// no other record shares. It is Key where FromCoordinates is set.
	Place uuid.UUID
	// FromCoordinates says that the producer gave no identity: redeliveries are recognised, producer duplicates not.
	FromCoordinates bool
}

// Owner is what delivered a record and keeps its place: a claim of a Kafka partition, or parking. The records of one
// call belong to one message. Methods may be called from any goroutine.
type Owner interface {
	// Settle marks r done and reports whether this call did it. It is false for a record that is already settled,
	// was given back, or whose claim has ended: nothing moves for it any more.
	Settle(r *Record, o Outcome) bool
	// GiveBack ends the delivery of those of rs that are not settled.
	GiveBack(rs []*Record)
	// Wait gives up what those of rs occupy that run, so that others begin.
	Wait(rs []*Record)
	// Resume lets rs run again, blocking until there is room beside others that do; false when the claim is ending.
	Resume(rs []*Record) bool
}

// Watcher is told of the one Settle that won, on the goroutine that settled.
type Watcher interface {
	Settled(r *Record, o Outcome)
}

// Watch sets who is told when r settles (observe layer). Call it before r is handed inwards.
func (r *Record) Watch(w Watcher) { r.watcher = w }

// Bind makes r a delivery of owner. It is called once, before r is handed to anybody.
//
// soft closes when the delivery should begin nothing more. domain names what must stay in order: records of one owner
// with the same domain run one after the other, and "" is a record that depends on no other.
func (r *Record) Bind(owner Owner, soft <-chan struct{}, domain string) {
	r.owner, r.soft, r.domain = owner, soft, domain
}

// Settle says that outcome o of r is durable. The first call wins and reports true; a later one changes nothing, nor
// does one after the record was given back or its claim ended. It must not be called before Bind.
func (r *Record) Settle(o Outcome) bool {
	if r.outcome.Load() != 0 || !r.owner.Settle(r, o) {
		return false
	}
	r.outcome.Store(uint32(o))
	if r.watcher != nil {
		r.watcher.Settled(r, o)
	}
	return true
}

// Outcome is what r was settled with, Unsettled before.
func (r *Record) Outcome() Outcome { return Outcome(r.outcome.Load()) }

// Settled says whether r has its outcome.
func (r *Record) Settled() bool { return r.outcome.Load() != 0 }

// Soft closes when the record's claim begins to end: begin nothing, end every wait.
func (r *Record) Soft() <-chan struct{} { return r.soft }

// Ending says whether Soft is closed.
func (r *Record) Ending() bool {
	select {
	case <-r.soft:
		return true
	default:
		return false
	}
}

// Domain names what r must stay in order with; "" for a record that depends on no other.
func (r *Record) Domain() string { return r.domain }

// Begin starts the record's running time, which the watchdog looks at; End stops it. The owner begins it when it hands
// the record out; the stack ends it at its door and begins it again around decoding and each attempt, so that waits in
// a writer's queue, back-offs and holds do not count.
func (r *Record) Begin() { r.BeginAt(time.Now()) }

// BeginAt is Begin for whoever has looked at the clock.
func (r *Record) BeginAt(now time.Time) {
	r.attempt.Store(int32(r.Attempts) + 1)
	r.began.Store(int64(now.Sub(epoch)))
}

// BeginAll is Begin for each of rs, at one moment.
func BeginAll(rs []*Record) {
	now := time.Now()
	for _, r := range rs {
		r.BeginAt(now)
	}
}

// Attempt is the number of the attempt that Begin started last, 1 for the first. It is what a handler may ask from any
// goroutine: a handler that outlives its deadline still reads while the layers outside go on to count Attempts.
func (r *Record) Attempt() int { return int(r.attempt.Load()) }

// End stops what Begin started.
func (r *Record) End() { r.began.Store(0) }

// RunningSince is when the running attempt began, and whether one runs.
func (r *Record) RunningSince() (time.Time, bool) {
	ns := r.began.Load()
	return epoch.Add(time.Duration(ns)), ns != 0
}

// epoch is what running times are counted from: on the monotonic clock, so that a step of the wall clock neither trips
// the watchdog nor blinds it.
var epoch = time.Now()

// Header gives the value of the first header with this name, and whether there is one.
func (r *Record) Header(name string) ([]byte, bool) {
	for _, h := range r.Headers {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// Remaining gives those of rs that have no outcome yet, in order; rs itself if that is all of them.
func Remaining(rs []*Record) []*Record {
	for i, r := range rs {
		if r.Settled() {
			return remainingFrom(rs, i)
		}
	}
	return rs
}

func remainingFrom(rs []*Record, i int) []*Record {
	left := append(make([]*Record, 0, len(rs)-1), rs[:i]...)
	for _, r := range rs[i+1:] {
		if !r.Settled() {
			left = append(left, r)
		}
	}
	return left
}

// GiveBack ends the delivery of those of rs, records of one message, that have no outcome.
func GiveBack(rs []*Record) {
	if left := Remaining(rs); len(left) > 0 {
		left[0].owner.GiveBack(left)
	}
}

// Wait says that rs, records of one message, do not run: they are in a back-off or held.
func Wait(rs []*Record) {
	if len(rs) > 0 {
		rs[0].owner.Wait(rs)
	}
}

// Resume lets rs run again, in order. It blocks until there is room and is false when the claim is ending: then the
// records must be given back.
func Resume(rs []*Record) bool {
	return len(rs) == 0 || rs[0].owner.Resume(rs)
}
