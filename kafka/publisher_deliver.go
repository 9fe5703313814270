package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/backoff"
)

// again is the wait before what another call's record caused is tried again.
const again = 50 * time.Millisecond

// parcel is one record on its way to its confirmation.
type parcel struct {
	ctx context.Context // the caller's, which may end the wait
	rec ProducerRecord
	err error // nil once confirmed
	// maybe is what the first try failed with that may have written it: whatever the next one is told says nothing of that.
	maybe error
}

// deliver sends parcels in order and waits for their confirmations. Those too large for a batch interrupt the others, so
// that the order of a key is kept.
func (p *Publisher) deliver(parcels []*parcel) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.running.Done()
	s := p.ship()
	defer s.release()
	s.send(parcels)
	return publishError(parcels)
}

// shipment is one call's parcels under way.
type shipment struct {
	pub   *Publisher
	life  context.Context // ends with the Publisher's patience; each parcel has its caller's besides
	end   context.CancelFunc
	users *atomic.Int64 // the call, and each record that the client has not answered for
}

func (p *Publisher) ship() shipment {
	life, end := context.WithTimeoutCause(context.Background(), p.cfg.Timeout, unconfirmedError{p.cfg.Timeout})
	s := shipment{p, life, end, new(atomic.Int64)}
	s.users.Store(1)
	return s
}

// release ends life early once nobody needs it: not with the call, since a caller may leave -> the call is over -> the
// client, whose record's context has ended, fails what others have buffered for the partition.
func (s shipment) release() {
	if s.users.Add(-1) == 0 {
		s.end()
	}
}

// patient is a caller's context that ends with the shipment and not with the caller. The client must not see the caller's
// own: it fails everything that is buffered for a partition when the context of one record there ends. Nor is the client's
// delivery timeout of use: it counts from a record's timestamp, which may be of 1970 or of 2100.
type patient struct {
	context.Context // the shipment's

	caller context.Context
}

func (p patient) Value(key any) any { return p.caller.Value(key) }

func (s shipment) send(parcels []*parcel) {
	for rest := parcels; len(rest) > 0; {
		n := batchable(rest)
		s.together(rest[:n])
		if n < len(rest) {
			s.alone(rest[n])
			n++
		}
		rest = rest[n:]
	}
}

// batchable is how many of the first parcels may be sent in batches.
func batchable(parcels []*parcel) int {
	for i, q := range parcels {
		if q.rec.Alone || q.rec.Size() > batchMaxBytes-16 {
			return i
		}
	}
	return len(parcels)
}

// together sends parcels in batches. A broker refuses a batch as a whole for one record in it, which may be another
// call's: whoever was in it goes alone.
func (s shipment) together(parcels []*parcel) {
	for left := parcels; len(left) > 0; {
		s.attempt(left)
		if left = s.neighbours(left); len(left) > 0 {
			backoff.Wait(s.life, again)
		}
	}
	for _, q := range parcels {
		if errors.Is(q.err, kerr.MessageTooLarge) {
			s.alone(q)
		}
	}
}

func (s shipment) attempt(parcels []*parcel) {
	answers := make([]<-chan error, len(parcels))
	for i, q := range parcels {
		answers[i] = s.hand(q)
	}
	for i, q := range parcels {
		s.await(q, answers[i])
	}
}

// hand gives a parcel to the client.
func (s shipment) hand(q *parcel) <-chan error {
	answer := make(chan error, 1)
	if err := s.ended(q); err != nil {
		answer <- cmp.Or(q.err, err) // what it failed with before may have left it written
		return answer
	}
	by := s.pub.use()
	s.users.Add(1)
	by.client.TryProduce(patient{s.life, q.ctx}, q.rec.forClient(), func(_ *kgo.Record, err error) {
		s.pub.done(by, q.rec.Topic, err)
		s.release()
		answer <- err
	})
	return answer
}

// alone sends a parcel in a batch of its own. Nobody shares its fate there, so its context goes with it.
func (s shipment) alone(q *parcel) {
	if q.err = s.ended(q); q.err != nil {
		return
	}
	ctx, cancel := context.WithCancel(q.ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	// A channel and not the client's own limit of one buffered record: that wakes all who wait for each that is done.
	select {
	case s.pub.turn <- struct{}{}:
	case <-ctx.Done():
		q.err = s.ended(q)
		return
	}
	by, err := s.pub.lone()
	if err != nil {
		<-s.pub.turn
		q.err = err
		return
	}
	answer := make(chan error, 1)
	by.client.Produce(ctx, q.rec.forClient(), func(_ *kgo.Record, err error) {
		// The turn ends with the record and not with the caller's wait: context ends -> the next is handed over -> the
		// client drops all that it has buffered for the partition, the next too.
		s.pub.done(by, q.rec.Topic, err)
		<-s.pub.turn
		answer <- err
	})
	s.await(q, answer)
}

// await takes the answer, or the end of the caller's patience: then it is unknown whether the record will be written.
func (s shipment) await(q *parcel, answer <-chan error) {
	defer q.answered()
	select {
	case q.err = <-answer:
	case <-q.ctx.Done():
		q.err = late(answer, context.Cause(q.ctx))
	case <-s.life.Done():
		q.err = late(answer, context.Cause(s.life))
	}
}

// answered takes note of a try that may have written the parcel.
func (q *parcel) answered() {
	if q.err != nil && q.maybe == nil {
		if ambiguous, _ := verdict(q.rec.Topic, q.err); ambiguous {
			q.maybe = q.err
		}
	}
}

// late prefers an answer that came at the same moment.
func late(answer <-chan error, cause error) error {
	select {
	case err := <-answer:
		return err
	default:
		return fmt.Errorf("sent, but not confirmed: %w", cause)
	}
}

// ended says why a parcel must not be sent any more.
func (s shipment) ended(q *parcel) error {
	for _, ctx := range []context.Context{q.ctx, s.life} {
		if ctx.Err() != nil {
			return &unsentError{context.Cause(ctx)}
		}
	}
	return nil
}

// ofOthers are the reasons that are not of the record: it was buffered for a partition behind another whose time was over,
// the client was full, or it knew a topic that was created again meanwhile.
var ofOthers = []error{context.DeadlineExceeded, kgo.ErrMaxBuffered, kerr.UnknownTopicID}

// neighbours are those that failed for no reason of their own while their time is not over.
func (s shipment) neighbours(parcels []*parcel) []*parcel {
	var left []*parcel
	for _, q := range parcels {
		if isAny(q.err, ofOthers) && s.life.Err() == nil && q.ctx.Err() == nil {
			left = append(left, q)
		}
	}
	return left
}

// forClient copies nothing but the headers' frame.
func (r ProducerRecord) forClient() *kgo.Record {
	out := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp, Partition: noWish}
	if r.Partition != nil {
		out.Partition = *r.Partition
	}
	if len(r.Headers) > 0 {
		out.Headers = make([]kgo.RecordHeader, len(r.Headers))
	}
	for i, h := range r.Headers {
		out.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
	}
	return out
}
