package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// world is a broker and its clients in virtual time: an hour passes in a second, and only when nobody has anything to
// do.
type world struct {
	t        *testing.T
	net      kfake.VirtualNetwork
	fake     *kfake.Cluster
	producer *kgo.Client
}

// virtual runs f in a world with topic "t" of n partitions.
func virtual(t *testing.T, partitions int32, f func(w *world), opts ...kfake.Opt) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		fake, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.Ports(19300), kfake.SeedTopics(partitions, "t"),
			kfake.ListenFn(w.net.Listen), kfake.GroupMinSessionTimeout(time.Millisecond))...)
		require.NoError(t, err)
		w.fake = fake
		w.producer, err = kgo.NewClient(append(w.client().Options(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(0))...)
		require.NoError(t, err)
		f(w)
		w.producer.Close()
		fake.Close()
		wait(time.Minute) // what the fake broker still sleeps on
	})
}

// wait lets virtual time pass.
func wait(d time.Duration) { <-time.After(d) }

func (w *world) client() kafka.ClientConfig {
	return kafka.ClientConfig{Brokers: w.fake.ListenAddrs(), Dial: w.net.DialContext, Logger: quiet()}
}

// source makes a Source of group "g" that ends with the world, if the test does not end it.
func (w *world) source(change ...func(*kafka.SourceConfig)) *kafka.Source {
	w.t.Helper()
	cfg := kafka.SourceConfig{Client: w.client(), Group: "g", Logger: quiet()}
	for _, f := range change {
		f(&cfg)
	}
	s, err := kafka.NewSource(cfg)
	require.NoError(w.t, err)
	return s
}

// produce appends records to a partition of topic "t"; an empty key is none.
func (w *world) produce(partition int32, keys ...string) {
	w.t.Helper()
	for i, key := range keys {
		r := &kgo.Record{Topic: "t", Partition: partition, Value: []byte(fmt.Sprint(i))}
		if key != "" {
			r.Key = []byte(key)
		}
		require.NoError(w.t, w.producer.ProduceSync(w.t.Context(), r).FirstErr())
	}
}

// produceMany appends n records without a key.
func (w *world) produceMany(partition int32, n int) { w.produce(partition, make([]string, n)...) }

// committed is the group's offset, -1 for none.
func (w *world) committed(partition int32) int64 {
	info := w.fake.GroupInfo("g")
	if info == nil {
		return -1
	}
	c, ok := info.Commits["t"][partition]
	if !ok {
		return -1
	}
	return c.Offset
}

// reports collects what operators are told, and which claims began and ended.
type reports struct {
	mu     sync.Mutex
	all    []record.Report
	claims []record.ClaimInfo
}

func (rs *reports) hook(cfg *kafka.SourceConfig) {
	cfg.Hooks = &record.Hooks{
		OnReport: func(r record.Report) {
			rs.mu.Lock()
			defer rs.mu.Unlock()
			rs.all = append(rs.all, r)
		},
		OnClaim: func(c record.ClaimInfo) {
			rs.mu.Lock()
			defer rs.mu.Unlock()
			rs.claims = append(rs.claims, c)
		},
	}
}

func (rs *reports) of(kind string) []record.Report {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(rs.all), func(r record.Report) bool { return r.Kind != kind })
}

func (rs *reports) events(event string) int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	n := 0
	for _, c := range rs.claims {
		if c.Event == event {
			n++
		}
	}
	return n
}

// seen is what handlers saw.
type seen struct {
	mu      sync.Mutex
	offsets map[string][]int64
}

func (s *seen) add(r *record.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offsets == nil {
		s.offsets = map[string][]int64{}
	}
	at := fmt.Sprintf("%s/%d", r.Topic, r.Partition)
	s.offsets[at] = append(s.offsets[at], r.Offset)
}

func (s *seen) of(partition int32) []int64 { return s.at("t", partition) }

func (s *seen) at(topic string, partition int32) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offsets[fmt.Sprintf("%s/%d", topic, partition)])
}

func (s *seen) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.offsets {
		n += len(o)
	}
	return n
}

// handle runs a handler for each message, each on its goroutine, like Watermill's Router: nil acknowledges.
func handle(msgs <-chan *message.Message, h func(*message.Message) error) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		for msg := range msgs {
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

func (w *world) subscribe(s message.Subscriber) <-chan *message.Message {
	w.t.Helper()
	msgs, err := s.Subscribe(context.Background(), "t")
	require.NoError(w.t, err)
	return msgs
}

// records are those of a message of the Source.
func records(msg *message.Message) []*record.Record {
	rs, err := record.Records(msg)
	if err != nil {
		panic(err)
	}
	return rs
}

// take gives the next message.
func (w *world) take(msgs <-chan *message.Message) *message.Message {
	w.t.Helper()
	select {
	case msg, ok := <-msgs:
		require.True(w.t, ok, "the channel is closed")
		return msg
	case <-time.After(5 * time.Minute):
		w.t.Fatal("no message came")
		return nil
	}
}

// upTo gives 0, 1, …, n-1.
func upTo(n int) []int64 {
	os := make([]int64, n)
	for i := range os {
		os[i] = int64(i)
	}
	return os
}

// observe counts the requests of one kind.
func (w *world) observe(key int16) *kfake.FaultHandle {
	return w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Key(key)}, Observe: true, Count: -1})
}

// fakeGate is a gate that a test opens and shuts.
type fakeGate struct {
	mu   sync.Mutex
	shut bool
	fs   map[int]func()
	n    int
}

func (g *fakeGate) Shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

func (g *fakeGate) Watch(f func()) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fs == nil {
		g.fs = map[int]func(){}
	}
	g.n++
	n := g.n
	g.fs[n] = f
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.fs, n)
	}
}

// set calls the watchers with its lock held, as a gate may.
func (g *fakeGate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for _, f := range g.fs {
		f()
	}
}

func (g *fakeGate) watchers() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.fs)
}
