package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/fault"
)

// PublishError tells which records of a call are not confirmed. All others of the call are.
type PublishError struct {
	// Total is how many records the call had.
	Total int
	// Failed are those that are not confirmed, in order.
	Failed []FailedRecord
}

// FailedRecord is a record, or message, that is not confirmed.
type FailedRecord struct {
	// Index is its place among the records, or messages, of the call.
	Index int
	// Topic is where it was to go.
	Topic string
	// Ambiguous says that it may have been written nevertheless, by its last try or by one before it.
	Ambiguous bool
	// Err is why; a fault.Classifier knows what it means.
	Err error
}

func (e *PublishError) Error() string {
	first := e.Failed[0]
	if e.Total == 1 {
		return fmt.Sprintf("publish to %q: %v", first.Topic, first.Err)
	}
	return fmt.Sprintf("%d of %d records not confirmed; first is number %d, to %q: %v",
		len(e.Failed), e.Total, first.Index, first.Topic, first.Err)
}

// Unwrap gives the errors of all that failed, for errors.Is and errors.As.
func (e *PublishError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}

func publishError(parcels []*parcel) error {
	var failed []FailedRecord
	for i, q := range parcels {
		if q.err != nil {
			ambiguous, err := q.verdict()
			failed = append(failed, FailedRecord{Index: i, Topic: q.rec.Topic, Ambiguous: ambiguous, Err: err})
		}
	}
	if failed == nil {
		return nil
	}
	return &PublishError{Total: len(parcels), Failed: failed}
}

// verdict is that of all tries: written by one -> its answer is lost -> the next is refused, or not sent any more: it may be
// there all the same.
func (q *parcel) verdict() (ambiguous bool, _ error) {
	ambiguous, err := verdict(q.rec.Topic, q.err)
	if ambiguous || q.maybe == nil {
		return ambiguous, err
	}
	return true, fault.Ambiguous(fmt.Errorf("%w; an earlier try may have written it: %w", err, q.maybe))
}

// verdict says what a produce error means: whether the record may be in the topic all the same, and err in the words of
// package fault. A broker that names a cause did not write; everything else (an unknown server error, too few
// replicas, a leader that moved, any deadline, a silent connection) was seen with the record written.
func verdict(topic string, err error) (ambiguous bool, _ error) {
	var unsent *unsentError
	switch {
	case errors.As(err, &unsent):
		return false, fault.Transient(unsent)
	case isAny(err, unknownTopics):
		return false, fault.Transient(fmt.Errorf("%w %q: %w", ErrUnknownTopic, topic, err))
	case isAny(err, ourAccess):
		return false, fault.Unavailable(err, fault.Kafka)
	case isAny(err, refusals):
		return false, fault.Permanent(err)
	case isAny(err, unwritten):
		return false, fault.Transient(err)
	default:
		return true, fault.Ambiguous(err)
	}
}

var (
	unknownTopics = []error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID}
	// ourAccess: not the record is at fault but who we are, so the next record would fail as well.
	ourAccess = []error{
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
	}
	// refusals: the record itself is refused and will be again.
	refusals = []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.PolicyViolation,
		kerr.InvalidTimestamp, kerr.InvalidTopicException, kerr.UnsupportedForMessageFormat,
		kerr.UnsupportedCompressionType,
	}
	// unwritten: nothing was written, and another try may succeed. A corrupt batch was damaged on its way.
	unwritten = []error{kerr.CorruptMessage, kgo.ErrMaxBuffered}
)

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// unsentError is a record whose time was over before it was handed to the client.
type unsentError struct{ cause error }

func (e *unsentError) Error() string { return "not sent: " + e.cause.Error() }
func (e *unsentError) Unwrap() error { return e.cause }

// unconfirmedError is the cause with which a Publisher's own patience ends. Like a context's deadline it is a timeout.
type unconfirmedError struct{ after time.Duration }

func (e unconfirmedError) Error() string {
	return fmt.Sprintf("the brokers did not answer within %s", e.after)
}
func (e unconfirmedError) Is(target error) bool { return target == context.DeadlineExceeded }
func (e unconfirmedError) Timeout() bool        { return true }
