package kafka

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// TestVerdict is the table of produce errors: which of them leave it open whether the record was written, and what they
// mean for whoever published.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err       error
		ambiguous bool
		class     fault.Class
	}{
		{kerr.MessageTooLarge, false, fault.ClassPermanent},
		{fmt.Errorf("%w (uncompressed_bytes=7)", kerr.MessageTooLarge), false, fault.ClassPermanent},
		{kerr.RecordListTooLarge, false, fault.ClassPermanent},
		{kerr.InvalidRecord, false, fault.ClassPermanent},
		{kerr.PolicyViolation, false, fault.ClassPermanent},
		{kerr.InvalidTimestamp, false, fault.ClassPermanent},
		{kerr.InvalidTopicException, false, fault.ClassPermanent},
		{kerr.UnknownTopicOrPartition, false, fault.ClassTransient},
		{kerr.UnknownTopicID, false, fault.ClassTransient},
		{kerr.CorruptMessage, false, fault.ClassTransient},
		{kgo.ErrMaxBuffered, false, fault.ClassTransient},
		{&unsentError{context.DeadlineExceeded}, false, fault.ClassTransient},
		{kerr.TopicAuthorizationFailed, false, fault.ClassUnavailable},
		{kerr.ClusterAuthorizationFailed, false, fault.ClassUnavailable},
		{kerr.SaslAuthenticationFailed, false, fault.ClassUnavailable},

		{kerr.UnknownServerError, true, fault.ClassAmbiguous},
		{kerr.NotEnoughReplicas, true, fault.ClassAmbiguous},
		{kerr.NotEnoughReplicasAfterAppend, true, fault.ClassAmbiguous},
		{kerr.NotLeaderForPartition, true, fault.ClassAmbiguous},
		{kerr.KafkaStorageError, true, fault.ClassAmbiguous},
		{kerr.RequestTimedOut, true, fault.ClassAmbiguous},
		{kerr.OutOfOrderSequenceNumber, true, fault.ClassAmbiguous},
		{kgo.ErrRecordTimeout, true, fault.ClassAmbiguous},
		{kgo.ErrClientClosed, true, fault.ClassAmbiguous},
		{context.DeadlineExceeded, true, fault.ClassAmbiguous},
		{record.ErrRevoked, true, fault.ClassAmbiguous},
		{unconfirmedError{defaultPublishTimeout}, true, fault.ClassAmbiguous},
		{errors.New("connection reset"), true, fault.ClassAmbiguous},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			t.Parallel()
			ambiguous, err := verdict("orders", c.err)
			require.Equal(t, c.ambiguous, ambiguous)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.class, (&fault.Classifier{}).Classify(t.Context(), err).Class)
		})
	}
}

func TestUnconfirmedErrorIsATimeout(t *testing.T) {
	t.Parallel()
	var err error = unconfirmedError{defaultPublishTimeout}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, unconfirmedError{}.Timeout())
	require.EqualError(t, err, "the brokers did not answer within 30s")
}
