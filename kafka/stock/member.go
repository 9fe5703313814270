package stock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// startTimeout is how long the brokers may be away when the topics are looked up for the first time.
	startTimeout = 15 * time.Second
	// goodSession is what a session lasts that was no failure, whatever ended it.
	goodSession = time.Minute
)

// member is watermill-kafka's Subscriber of one topic: one client and one member of the group.
type member struct {
	s     *Subscriber
	topic string

	stock *wmkafka.Subscriber
	known atomic.Pointer[uuid.UUID] // the topic's id, as it was first seen, or as OnOffsetLoss let it become; only the one session at a time changes it

	joined atomic.Bool // it has a session whose topic is as it should be, or was when it began
	anew   atomic.Bool // in this session the topic was made anew

	// Only the one session at a time, and the connection before it, touch these.
	connects int // since the last session
	failures int // sessions that ended by themselves, one after the other

	// entering is held by who subscribes or closes: watermill-kafka counts its subscriptions with a WaitGroup, which may
	// not be added to while it is waited for. A close had to wait for that Subscribe to return anyway.
	entering sync.Mutex

	mu     sync.Mutex
	claims map[int32]*owned // that watermill-kafka reads
	ended  chan struct{}    // closed: nothing more comes from watermill-kafka
}

func newMember(s *Subscriber, topic string) (*member, error) {
	m := &member{s: s, topic: topic, claims: make(map[int32]*owned), ended: make(chan struct{})}
	var err error
	m.stock, err = wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: s.cfg.Client.Brokers, ConsumerGroup: s.cfg.Group, OverwriteSaramaConfig: s.sarama,
		Unmarshaler: unmarshaler{}, Tracer: seam{m}, ReconnectRetrySleep: firstRetry,
	}, &logger{m: m})
	return m, err
}

// run joins the group, for as long as it takes, and moves what comes.
func (m *member) run() {
	defer close(m.ended)
	id, err := m.topicID()
	if err != nil {
		go m.s.fail(err)
		return
	}
	m.known.Store(&id)
	if messages := m.subscribe(); messages != nil {
		m.receive(messages)
	}
}

func (m *member) id() uuid.UUID { return *m.known.Load() }

// topicID is asked for once in good time: without the ids of topics a record without a name of its own would have no
// identity, and a topic that was made anew would pass for the old one.
func (m *member) topicID() (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(m.s.running, startTimeout)
	defer cancel()
	for n := 0; ; n++ {
		id, err := m.s.lookUpID(ctx, m.topic)
		if err == nil {
			return id, nil
		}
		if permanent(err) || !m.s.wait(ctx, backoff.Exponential(firstRetry/10, firstRetry, n)) {
			return uuid.Nil, fmt.Errorf("kafka stock: the id of topic %q: %w", m.topic, err)
		}
	}
}

// subscribe waits until the brokers can be reached. It gives nil if the Subscriber stops before.
func (m *member) subscribe() <-chan *message.Message {
	for n := 0; ; n++ {
		messages, err := m.enter()
		if err == nil {
			return messages
		}
		if m.s.quitting() {
			return nil
		}
		m.s.trouble(place{m.topic, -1}, problem{kind: record.ReportGroupError, err: err})
		if !m.s.wait(context.Background(), backoff.Exponential(firstRetry, lastRetry, n)) {
			return nil
		}
	}
}

func (m *member) enter() (<-chan *message.Message, error) {
	m.entering.Lock()
	defer m.entering.Unlock()
	return m.stock.Subscribe(context.Background(), m.topic)
}

// receive hands what comes out of watermill-kafka to the claim that it came from. It never blocks: a message that nobody
// takes would keep its session from ending.
func (m *member) receive(messages <-chan *message.Message) {
	for msg := range messages {
		partition, _ := wmkafka.MessagePartitionFromCtx(msg.Context())
		if o := m.claim(partition); o != nil {
			o.arrived <- msg // has room: watermill-kafka has one message a claim out
		}
	}
}

// close ends watermill-kafka's Subscriber, which commits and leaves the group.
func (m *member) close() {
	m.entering.Lock()
	_ = m.stock.Close() // it has no error to give
	m.entering.Unlock()
	<-m.ended
}

// add notes the claim of a partition, and gives nil when the Subscriber stops.
func (m *member) add(sess sarama.ConsumerGroupSession, from sarama.ConsumerGroupClaim) *owned {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.stopping {
		return nil
	}
	o := newOwned(m, sess, from)
	m.mu.Lock()
	m.claims[o.Partition] = o
	m.mu.Unlock()
	m.s.claims[o] = struct{}{}
	for _, r := range m.s.routes[m.topic] {
		o.addLine(r)
	}
	return o
}

// remove forgets a claim that has ended.
func (m *member) remove(o *owned) {
	m.mu.Lock()
	delete(m.claims, o.Partition)
	m.mu.Unlock()
	m.s.mu.Lock()
	delete(m.s.claims, o)
	m.s.mu.Unlock()
}

func (m *member) claim(partition int32) *owned {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims[partition]
}
