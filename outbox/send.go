package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
)

// sender is a producer of which one thing more is known than of a kafka.Publisher's: what is sent together to one partition
// is one batch, which is written or not as a whole. So no event of a key is written while one before it is refused.
//
// For that nothing leaves before all is handed over (manual flushing), all fits into one batch, and nothing else is sent
// by it until all is answered. One that waits for an answer for long is left to itself, and another one takes its place.
type sender struct {
	client *kgo.Client
	work   sync.WaitGroup
}

// maxWave bounds what is sent together, in bytes of records each of which would be a batch alone: less than the batch has.
const maxWave = MaxBytes

const (
	metadataMinAge      = 100 * time.Millisecond
	unknownTopicRetries = 2
)

// result is what became of all that was sent together to one topic.
type result struct {
	topic     string
	sent      int
	confirmed []int64 // events that all in-sync replicas have
	err       error   // of the first of the others
}

func newSender(cfg Config) (*sender, error) {
	opts := append(
		cfg.Client.Options(),
		kgo.RequiredAcks(kgo.AllISRAcks()), // and idempotent, the client's default
		kgo.RecordPartitioner(cfg.Partitioner),
		kgo.ManualFlushing(),
		kgo.ProducerBatchMaxBytes(maxWave+1024),
		kgo.MaxBufferedRecords(maxBatch),
		// Without these a record that was sent waits for its answer for ever, and with it those of all other topics.
		kgo.RecordDeliveryTimeout(cfg.Timeout),
		kgo.AllowIdempotentProduceCancellation(),
		kgo.ProduceRequestTimeout(cfg.Timeout/3),
		kgo.RequestTimeoutOverhead(cfg.Timeout/3),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.UnknownTopicRetries(unknownTopicRetries), // the topic's events are tried again anyway
	)
	if len(cfg.Compression) > 0 {
		opts = append(opts, kgo.ProducerBatchCompression(cfg.Compression...))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("outbox client: %w", err)
	}
	return &sender{client: client}, nil
}

// retire ends the sender once what it has sent is answered.
func (s *sender) retire() {
	s.work.Wait()
	s.client.Close()
}

// errUnanswered is for what was sent and is not confirmed: it may be written or not.
var errUnanswered = errors.New("sent, but not confirmed when the forwarder had to end")

// send sends events in order, and gives each topic's result as soon as there is one. When ctx ends, what is not answered
// stays so; then the sender must not be used again.
func (s *sender) send(ctx context.Context, events []event, results chan<- result) {
	s.work.Go(func() {
		type answer struct {
			at  int
			err error
		}
		answers := make(chan answer, len(events))
		open := newOpen(events)
		for i := range events {
			rec, err := events[i].record()
			if err != nil {
				answers <- answer{i, err}
				continue
			}
			s.client.Produce(context.WithoutCancel(ctx), forClient(rec), func(_ *kgo.Record, err error) { answers <- answer{i, err} })
		}
		defer s.flush(ctx)()
		for range events {
			select {
			case a := <-answers:
				if r, ok := open.answered(&events[a.at], a.err); ok {
					results <- r
				}
			case <-ctx.Done():
				open.end(results)
				return
			}
		}
	})
}

// open are the topics that are not answered yet, with how much of theirs is not.
type open map[string]*struct {
	result
	left int
}

func newOpen(events []event) open {
	o := open{}
	for i := range events {
		t := o[events[i].topic]
		if t == nil {
			t = &struct {
				result
				left int
			}{result: result{topic: events[i].topic}}
			o[t.topic] = t
		}
		t.sent++
		t.left++
	}
	return o
}

// answered takes the answer for e, and gives the topic's result with the last one.
func (o open) answered(e *event, err error) (r result, done bool) {
	t := o[e.topic]
	if err == nil {
		t.confirmed = append(t.confirmed, e.id)
	} else if t.err == nil {
		t.err = fmt.Errorf("event %d: %w", e.id, err)
	}
	if t.left--; t.left > 0 {
		return result{}, false
	}
	delete(o, e.topic)
	return t.result, true
}

// end gives the results of all that are not answered.
func (o open) end(results chan<- result) {
	for _, t := range o {
		if t.err == nil {
			t.err = errUnanswered
		}
		results <- t.result
	}
}

// flush lets go what was handed over, until stop is called. Each record says itself what became of it.
func (s *sender) flush(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.client.Flush(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func forClient(rec kafka.ProducerRecord) *kgo.Record {
	out := &kgo.Record{Topic: rec.Topic, Key: rec.Key, Value: rec.Value, Headers: make([]kgo.RecordHeader, len(rec.Headers))}
	for i, h := range rec.Headers {
		out.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
	}
	return out
}
