package stock_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

// patience is for what must happen, however busy the machine is.
const patience = time.Minute

// world is a topic on a broker, a group of its own, and what its members tell.
type world struct {
	t       *testing.T
	brokers []string
	topic   string
	group   string

	mu      sync.Mutex
	reports []record.Report
	claims  []record.ClaimInfo
}

func newWorld(t *testing.T, brokers []string, partitions int) *world {
	t.Helper()
	return &world{t: t, brokers: brokers, topic: kafkatest.Topic(t, brokers, partitions), group: kafkatest.Name(t)}
}

func (w *world) config() stock.Config {
	return stock.Config{Source: kafka.SourceConfig{
		Client: kafka.ClientConfig{Brokers: w.brokers, Logger: quiet()}, Group: w.group, Logger: quiet(),
		SessionTimeout: 10 * time.Second, HeartbeatInterval: 200 * time.Millisecond, CommitInterval: 100 * time.Millisecond,
		DrainGrace: 3 * time.Second, HardGrace: time.Second,
		Hooks: &record.Hooks{OnReport: w.reported, OnClaim: w.claimed},
	}}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (w *world) reported(r record.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, r)
}

func (w *world) claimed(c record.ClaimInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, c)
}

func (w *world) kinds() (kinds []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.reports {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

// events counts what became of claims.
func (w *world) events(event string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		if c.Event == event {
			n++
		}
	}
	return n
}

// subscriber makes one that the test's end closes.
func (w *world) subscriber(change ...func(*stock.Config)) *stock.Subscriber {
	w.t.Helper()
	cfg := w.config()
	for _, f := range change {
		f(&cfg)
	}
	s, err := stock.NewSubscriber(cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = s.Close() }) // a test that expects an error has looked at it
	return s
}

// produce appends n records to a partition.
func (w *world) produce(partition int32, n int) {
	w.t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: w.topic, Partition: partition, Value: fmt.Append(nil, i)}
	}
	kafkatest.Produce(w.t, w.brokers, rs...)
}

func (w *world) committed() map[int32]int64 {
	w.t.Helper()
	return kafkatest.Committed(w.t, w.brokers, w.group, w.topic)
}

func (w *world) eventually(what string, right func() bool) {
	w.t.Helper()
	require.Eventually(w.t, right, patience, 20*time.Millisecond, what)
}

func (w *world) messages(s message.Subscriber) <-chan *message.Message {
	w.t.Helper()
	messages, err := s.Subscribe(context.Background(), w.topic)
	require.NoError(w.t, err)
	return messages
}

// take gives the next message.
func (w *world) take(messages <-chan *message.Message) *message.Message {
	w.t.Helper()
	select {
	case msg, ok := <-messages:
		require.True(w.t, ok, "the channel is closed")
		return msg
	case <-time.After(patience):
		require.FailNow(w.t, "no message came")
		return nil
	}
}

// one gives the record of a message.
func one(t *testing.T, msg *message.Message) *record.Record {
	t.Helper()
	rs, err := record.Records(msg)
	require.NoError(t, err)
	require.Len(t, rs, 1)
	return rs[0]
}

// seen is what handlers saw, by partition. Safe for concurrent use.
type seen struct {
	mu      sync.Mutex
	offsets map[int32][]int64
}

func (s *seen) add(r *record.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offsets == nil {
		s.offsets = map[int32][]int64{}
	}
	s.offsets[r.Partition] = append(s.offsets[r.Partition], r.Offset)
}

func (s *seen) of(partition int32) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offsets[partition])
}

func (s *seen) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.offsets {
		n += len(o)
	}
	return n
}

// handle runs a handler for each message on its goroutine, as Watermill's Router does: nil acknowledges.
func handle(messages <-chan *message.Message, h func(*message.Message) error) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		for msg := range messages {
			wg.Go(func() {
				if h(msg) != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			})
		}
	})
	return &wg
}

// upTo gives 0, 1, …, n-1.
func upTo(n int) []int64 {
	os := make([]int64, n)
	for i := range os {
		os[i] = int64(i)
	}
	return os
}

// gate is one that a test opens and shuts.
type gate struct {
	mu   sync.Mutex
	shut bool
	fs   []func()
}

func (g *gate) Shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

func (g *gate) Watch(f func()) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fs = append(g.fs, f)
	return func() {}
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for _, f := range g.fs {
		f()
	}
}
