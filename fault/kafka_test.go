package fault_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/fault"
)

func TestKafka(t *testing.T) {
	t.Parallel()
	var rows []row
	add := func(class fault.Class, dep string, errs ...*kerr.Error) {
		for _, err := range errs {
			rows = append(rows, row{name: err.Message, err: err, class: class, dep: dep, rule: "kafka " + err.Message})
		}
	}
	add(fault.ClassTransient, "", kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.UnknownTopicOrPartition,
		kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.ThrottlingQuotaExceeded, kerr.CorruptMessage,
		kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.FencedMemberEpoch, kerr.ProducerFenced,
		kerr.UnknownProducerID, kerr.ConcurrentTransactions, kerr.OperationNotAttempted)
	add(fault.ClassAmbiguous, "", kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException,
		kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError, kerr.OutOfOrderSequenceNumber,
		kerr.DuplicateSequenceNumber)
	add(fault.ClassUnavailable, fault.Kafka, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.DelegationTokenExpired)
	add(fault.ClassPermanent, "", kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.PolicyViolation,
		kerr.InvalidTopicException, kerr.InvalidTimestamp, kerr.UnsupportedVersion, kerr.OffsetOutOfRange)
	check(t, rows)
}
