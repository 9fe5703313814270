package fault

import "github.com/twmb/franz-go/pkg/kerr"

// kafkaCodes are the broker's answers whose class does not follow from kerr's Retriable.
var kafkaCodes = map[int16]Class{
	// The broker may have appended before it said so (all of these were seen with the record in the log).
	kerr.UnknownServerError.Code:           ClassAmbiguous,
	kerr.RequestTimedOut.Code:              ClassAmbiguous,
	kerr.NetworkException.Code:             ClassAmbiguous,
	kerr.NotEnoughReplicas.Code:            ClassAmbiguous,
	kerr.NotEnoughReplicasAfterAppend.Code: ClassAmbiguous,
	kerr.KafkaStorageError.Code:            ClassAmbiguous,
	kerr.OutOfOrderSequenceNumber.Code:     ClassAmbiguous,
	kerr.DuplicateSequenceNumber.Code:      ClassAmbiguous,

	// Our credentials and rights.
	kerr.TopicAuthorizationFailed.Code:           ClassUnavailable,
	kerr.GroupAuthorizationFailed.Code:           ClassUnavailable,
	kerr.ClusterAuthorizationFailed.Code:         ClassUnavailable,
	kerr.TransactionalIDAuthorizationFailed.Code: ClassUnavailable,
	kerr.DelegationTokenAuthorizationFailed.Code: ClassUnavailable,
	kerr.DelegationTokenExpired.Code:             ClassUnavailable,
	kerr.SaslAuthenticationFailed.Code:           ClassUnavailable,
	kerr.UnsupportedSaslMechanism.Code:           ClassUnavailable,
	kerr.IllegalSaslState.Code:                   ClassUnavailable,
	kerr.SecurityDisabled.Code:                   ClassUnavailable,

	// The state of a client, a producer or the cluster, which heals; Kafka calls it not retriable because the client has
	// to do something first.
	kerr.RebalanceInProgress.Code:      ClassTransient,
	kerr.IllegalGeneration.Code:        ClassTransient,
	kerr.UnknownMemberID.Code:          ClassTransient,
	kerr.FencedMemberEpoch.Code:        ClassTransient,
	kerr.StaleMemberEpoch.Code:         ClassTransient,
	kerr.StaleBrokerEpoch.Code:         ClassTransient,
	kerr.StaleControllerEpoch.Code:     ClassTransient,
	kerr.NewLeaderElected.Code:         ClassTransient,
	kerr.ReassignmentInProgress.Code:   ClassTransient,
	kerr.OperationNotAttempted.Code:    ClassTransient,
	kerr.RebootstrapRequired.Code:      ClassTransient,
	kerr.ProducerFenced.Code:           ClassTransient,
	kerr.InvalidProducerEpoch.Code:     ClassTransient,
	kerr.InvalidProducerIDMapping.Code: ClassTransient,
	kerr.UnknownProducerID.Code:        ClassTransient,
	kerr.ConcurrentTransactions.Code:   ClassTransient,
	kerr.TransactionAbortable.Code:     ClassTransient,
}

// kafka knows the broker's answers. NOT_LEADER and its like are Transient: the broker that answers so appended nothing.
// What goes wrong with the connection to a broker is the network's business.
func kafka(head []error, _ bool) (Fault, bool) {
	e, ok := first[*kerr.Error](head)
	if !ok {
		return Fault{}, false
	}
	f := Fault{Class: ClassPermanent, Rule: "kafka " + e.Message}
	class, listed := kafkaCodes[e.Code]
	switch {
	case listed:
		f.Class = class
	case e.Retriable:
		f.Class = ClassTransient
	}
	if f.Class == ClassUnavailable {
		f.Dependency = Kafka
	}
	return f, true
}
