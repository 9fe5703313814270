package stock

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/fault"
)

// Rule says what Sarama's errors mean, for handlers that use Sarama or watermill-kafka themselves: give it to
// consumer.Options.Rules or to a fault.Classifier. A broker's answer means what it means to Headrace's own client.
//
// It does not know timeouts and broken connections: those are the network's, and known already.
func Rule(err error) (fault.Fault, bool) {
	var code sarama.KError
	switch {
	case errors.As(err, &code) && code != sarama.ErrNoError:
		return answer(code)
	case isAny(err, unsent):
		return fault.Fault{Class: fault.ClassUnavailable, Dependency: fault.Kafka, Rule: "sarama no broker"}, true
	case isAny(err, unread):
		return fault.Fault{Class: fault.ClassAmbiguous, Rule: "sarama unreadable answer"}, true
	case isAny(err, refused), isEncoding(err):
		return fault.Fault{Class: fault.ClassPermanent, Rule: "sarama refused"}, true
	}
	return several(err)
}

var _ fault.Rule = Rule

// answer is a broker's: Sarama's codes are the protocol's, and fault knows them.
func answer(code sarama.KError) (fault.Fault, bool) {
	return new(fault.Classifier).Classify(context.Background(), kerr.ErrorForCode(int16(code))), true
}

var (
	// unsent: no broker was there to send to, or our client is closed; the record is not at fault.
	unsent = []error{
		sarama.ErrOutOfBrokers, sarama.ErrBrokerNotFound, sarama.ErrNotConnected, sarama.ErrControllerNotAvailable,
		sarama.ErrClosedClient, sarama.ErrShuttingDown,
	}
	// unread: a broker has answered, and it is unknown what.
	unread = []error{sarama.ErrIncompleteResponse, sarama.ErrInsufficientData}
	// refused: Sarama itself does not send it, and will not.
	refused = []error{sarama.ErrInvalidPartition, sarama.ErrMessageTooLarge, sarama.ErrNonTransactedProducer}
)

func isEncoding(err error) bool {
	var encoding sarama.PacketEncodingError
	var config sarama.ConfigurationError
	return errors.As(err, &encoding) || errors.As(err, &config)
}

// several are the errors of one call that sent several records; the gravest decides.
func several(err error) (fault.Fault, bool) {
	var produced sarama.ProducerErrors
	if !errors.As(err, &produced) || len(produced) == 0 {
		return fault.Fault{}, false
	}
	errs := make([]error, len(produced))
	for i, e := range produced {
		errs[i] = e.Err
	}
	c := fault.Classifier{Rules: []fault.Rule{Rule}}
	return c.Classify(context.Background(), errors.Join(errs...)), true
}
