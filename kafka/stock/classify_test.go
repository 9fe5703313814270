package stock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka/stock"
)

func TestRule(t *testing.T) {
	t.Parallel()
	classifier := fault.Classifier{Rules: []fault.Rule{stock.Rule}}
	class := func(err error) fault.Fault { return classifier.ClassifyCall(context.Background(), err) }

	for name, c := range map[string]struct {
		err  error
		want fault.Class
	}{
		"OutOfBrokers":         {sarama.ErrOutOfBrokers, fault.ClassUnavailable},
		"OutOfBrokersWrapped":  {fmt.Errorf("publish: %w", errors.Join(sarama.ErrOutOfBrokers)), fault.ClassUnavailable},
		"NotConnected":         {sarama.ErrNotConnected, fault.ClassUnavailable},
		"ClosedClient":         {sarama.ErrClosedClient, fault.ClassUnavailable},
		"OurCredentials":       {sarama.ErrSASLAuthenticationFailed, fault.ClassUnavailable},
		"NotLeader":            {sarama.ErrNotLeaderForPartition, fault.ClassTransient},
		"Rebalance":            {sarama.ErrRebalanceInProgress, fault.ClassTransient},
		"TimedOut":             {sarama.ErrRequestTimedOut, fault.ClassAmbiguous},
		"TooFewReplicas":       {sarama.ErrNotEnoughReplicasAfterAppend, fault.ClassAmbiguous},
		"IncompleteAnswer":     {sarama.ErrIncompleteResponse, fault.ClassAmbiguous},
		"TooLarge":             {sarama.ErrMessageSizeTooLarge, fault.ClassPermanent},
		"Encoding":             {sarama.PacketEncodingError{Info: "x"}, fault.ClassPermanent},
		"Configuration":        {sarama.ConfigurationError("x"), fault.ClassPermanent},
		"OfAPartition":         {&sarama.ConsumerError{Topic: "t", Err: sarama.ErrNotLeaderForPartition}, fault.ClassTransient},
		"OfARecord":            {&sarama.ProducerError{Err: sarama.ErrOutOfBrokers}, fault.ClassUnavailable},
		"TheGravestOfSeveral":  {sarama.ProducerErrors{{Err: sarama.ErrNotLeaderForPartition}, {Err: sarama.ErrRequestTimedOut}}, fault.ClassAmbiguous},
		"SeveralOfWhichNoneIs": {sarama.ProducerErrors{}, fault.ClassPermanent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want.String(), class(c.err).Class.String())
		})
	}

	t.Run("ABrokersAnswerMeansWhatItMeansToOurOwnClient", func(t *testing.T) {
		t.Parallel()
		for code := int16(-1); code < 120; code++ {
			if own := kerr.ErrorForCode(code); own != nil {
				require.Equal(t, new(fault.Classifier).ClassifyCall(t.Context(), own), class(sarama.KError(code)), "%v", own)
			}
		}
	})

	t.Run("WhatIsNotSaramasIsLeftAlone", func(t *testing.T) {
		t.Parallel()
		_, known := stock.Rule(errors.New("no such account"))
		require.False(t, known)
		_, known = stock.Rule(sarama.KError(0))
		require.False(t, known, "no error")
	})
}
