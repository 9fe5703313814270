package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// KeyMetadata is the metadata key under which SetKey leaves a record's key. It is not written as a header.
const KeyMetadata = "headrace_key"

// SetKey gives msg's record its key, any bytes. It survives copies of the message. An empty key is a key; a message
// without SetKey makes a record without one.
func SetKey(msg *message.Message, key []byte) { msg.Metadata.Set(KeyMetadata, string(key)) }

func keyOfMetadata(_ string, msg *message.Message) ([]byte, error) {
	key, ok := msg.Metadata[KeyMetadata]
	if !ok {
		return nil, nil
	}
	return []byte(key), nil
}

// RecordOf is the record that a Publisher without a Key of its own makes of a message. The error says why it makes none.
func RecordOf(topic string, msg *message.Message) (ProducerRecord, error) {
	return (&Publisher{cfg: PublisherConfig{Key: keyOfMetadata}}).recordOf(topic, msg)
}

// errTransaction is a programmer's error. Whatever the outcome of the transaction, the record would be written.
var errTransaction = fault.Permanent(errors.New("published from a handler whose effects are one transaction: " +
	"the record would be written whether or not that commits, and again each time that the handler runs; " +
	"use outbox.Publisher(tx) or outbox.Queue (or a context that is not the handler's, if that is what you want)"))

// recordOf makes the record of a message, its headers as watermill-kafka's Marshaler writes them.
func (p *Publisher) recordOf(topic string, msg *message.Message) (ProducerRecord, error) {
	if err := publishable(msg); err != nil {
		return ProducerRecord{}, err
	}
	key, err := p.cfg.Key(topic, msg)
	if err != nil {
		return ProducerRecord{}, fmt.Errorf("key: %w", err)
	}
	return ProducerRecord{Topic: topic, Key: key, Value: msg.Payload, Headers: headersOf(msg)}, nil
}

func publishable(msg *message.Message) error {
	if _, ok := msg.Metadata[record.UUIDHeader]; ok {
		return fmt.Errorf("metadata %q is reserved for the message's UUID", record.UUIDHeader)
	}
	// A message of several records has a nil payload: forwarded as it is, it would become one tombstone in their place.
	if n := msg.Metadata[record.CountKey]; n != "" && n != "1" {
		return fmt.Errorf("it carries %s records of a Source and is no record itself; publish each with PublishRecords", n)
	}
	return nil
}

func headersOf(msg *message.Message) []record.Header {
	hs := make([]record.Header, 1, len(msg.Metadata)+1)
	hs[0] = record.Header{Key: record.UUIDHeader, Value: []byte(msg.UUID)}
	for name, value := range msg.Metadata {
		if name != KeyMetadata && name != record.CountKey {
			hs = append(hs, record.Header{Key: name, Value: []byte(value)})
		}
	}
	slices.SortFunc(hs[1:], func(a, b record.Header) int { return strings.Compare(a.Key, b.Key) })
	return hs
}
