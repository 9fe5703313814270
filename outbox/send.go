package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sender is a producer of which one thing more is known than of a kafka.Publisher's: what is sent together to one partition
// is one batch, which is written or not as a whole. So no event of a key is written while one before it is refused.
//
// For that nothing leaves before all is handed over (manual flushing), all fits into one batch, and nothing else is sent
// by it until all is answered. One that waits for an answer for long is left to itself, and another one takes its place.
type sender struct {
	client *kgo.Client
	work   sync.WaitGroup
	turn   sync.Mutex // of a wave: what is handed over while another is flushed does not leave together
	anew   sync.Map   // topics that were created again, to be forgotten
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
	confirmed []*event // that all in-sync replicas have
	failed    *event   // the first of the others
	err       error    // what with
}

func newSender(cfg Config) (*sender, error) {
	opts := append(
		cfg.Client.Options(),
		kgo.RequiredAcks(kgo.AllISRAcks()), // and idempotent, the client's default
		kgo.RecordPartitioner(cfg.Partitioner),
		kgo.ManualFlushing(),
		kgo.ProducerBatchMaxBytes(maxWave+1024),
		kgo.MaxBufferedRecords(maxBatch+packEvents),
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

// ask asks one broker after the other, the n-th first, until one answers or ctx ends: one that does not answer costs this
// question and not the next. The error is that of one try; the client itself would try again until ctx ends, and forget it.
func (s *sender) ask(ctx context.Context, n int) (err error) {
	brokers := append(s.client.DiscoveredBrokers(), s.client.SeedBrokers()...)
	for i := range brokers {
		question := kmsg.NewPtrMetadataRequest()
		question.Topics = []kmsg.MetadataRequestTopic{} // of none
		if _, err = brokers[(n+i)%len(brokers)].Request(ctx, question); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
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
func (s *sender) send(ctx context.Context, events []*event, results chan<- result) {
	s.work.Go(func() {
		s.turn.Lock()
		defer s.turn.Unlock()
		w, uncancelled := newWave(events, results), context.WithoutCancel(ctx)
		for _, e := range events {
			rec, err := e.record()
			if err != nil {
				w.answered(e, err)
				continue
			}
			s.client.Produce(uncancelled, rec, func(_ *kgo.Record, err error) {
				if errors.Is(err, kerr.UnknownTopicID) {
					s.anew.Store(rec.Topic, nil)
				}
				w.answered(e, err)
			})
		}
		defer s.flush(ctx)()
		select {
		case <-w.over:
			s.forget()
		case <-ctx.Done():
			w.end()
		}
	})
}

// forget has the client learn the topics anew that were deleted and created again: by itself it refuses every event for them, for
// as long as it lives.
func (s *sender) forget() {
	s.anew.Range(func(topic, _ any) bool {
		s.anew.Delete(topic)
		s.client.PurgeTopicsFromProducing(topic.(string))
		return true
	})
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
