// Rdkafka writes what its input says (wire.go, beside this directory, has the format) with librdkafka, the client beneath
// most languages, and says "ok" after each batch. Whatever goes wrong ends it.
//
// Arguments: brokers, transactional id, the codec of what is plain, the codec of transactions.
//
// It is a module of its own: librdkafka comes with it, and nothing else of Headrace needs a C compiler.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const (
	plain  = 0
	commit = 1
)

// patience is for one step of a transaction.
const patience = 20 * time.Second

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "rdkafka:", err)
		os.Exit(1)
	}
}

func run(brokers, transactionalID, plainCodec, transactionCodec string) error {
	outside, err := producer(kafka.ConfigMap{"bootstrap.servers": brokers, "compression.codec": plainCodec, "message.timeout.ms": 25_000})
	if err != nil {
		return err
	}
	inside, err := producer(kafka.ConfigMap{
		"bootstrap.servers": brokers, "compression.codec": transactionCodec,
		"transactional.id": transactionalID, "transaction.timeout.ms": 10_000,
	})
	if err != nil {
		return err
	}
	in := input{Reader: bufio.NewReader(os.Stdin)}
	for begun := false; ; {
		how, messages := in.batch()
		switch {
		case errors.Is(in.err, io.EOF):
			return nil
		case in.err != nil:
			return in.err
		case how == plain:
			err = send(outside, messages)
		default:
			err = transaction(inside, messages, how == commit, &begun)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "ok")
	}
}

func producer(config kafka.ConfigMap) (*kafka.Producer, error) {
	config["enable.idempotence"] = true
	p, err := kafka.NewProducer(&config)
	if err != nil {
		return nil, err
	}
	go func() {
		for range p.Events() { // an error that matters is a delivery's, too
		}
	}()
	return p, nil
}

func transaction(p *kafka.Producer, messages []*kafka.Message, commits bool, begun *bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !*begun {
		if err := p.InitTransactions(ctx); err != nil {
			return err
		}
		*begun = true
	}
	if err := p.BeginTransaction(); err != nil {
		return err
	}
	if err := send(p, messages); err != nil {
		return err
	}
	if commits {
		return p.CommitTransaction(ctx)
	}
	return p.AbortTransaction(ctx)
}

func send(p *kafka.Producer, messages []*kafka.Message) error {
	told := make(chan kafka.Event, len(messages))
	for _, m := range messages {
		if err := p.Produce(m, told); err != nil {
			return err
		}
	}
	for range messages {
		if m, ok := (<-told).(*kafka.Message); ok && m.TopicPartition.Error != nil {
			return m.TopicPartition.Error
		}
	}
	return nil
}

// input takes batches apart. After its first error it gives zero values.
type input struct {
	*bufio.Reader
	err error
}

func (in *input) batch() (how byte, messages []*kafka.Message) {
	if how, in.err = in.ReadByte(); in.err != nil {
		return 0, nil
	}
	for n := in.number(); n > 0 && in.err == nil; n-- {
		topic := string(in.bytes())
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}}
		m.Key, m.Value = in.bytes(), in.bytes()
		if at := in.time(); at >= 0 {
			m.Timestamp = time.UnixMilli(at)
		}
		for h := in.number(); h > 0 && in.err == nil; h-- {
			m.Headers = append(m.Headers, kafka.Header{Key: string(in.bytes()), Value: in.bytes()})
		}
		messages = append(messages, m)
	}
	return how, messages
}

func (in *input) number() (n int32) {
	in.read(&n)
	return n
}

func (in *input) time() (ms int64) {
	in.read(&ms)
	return ms
}

func (in *input) bytes() []byte {
	n := in.number()
	if n < 0 || in.err != nil {
		return nil
	}
	b := make([]byte, n)
	in.read(b)
	return b
}

// read takes what it lacks in the middle of a batch for an error of another kind than the end.
func (in *input) read(into any) {
	if in.err != nil {
		return
	}
	if in.err = binary.Read(in.Reader, binary.BigEndian, into); errors.Is(in.err, io.EOF) {
		in.err = io.ErrUnexpectedEOF
	}
}
