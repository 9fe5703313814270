package stock

import (
	"context"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/internal/backoff"
)

// seam is where watermill-kafka lets others wrap what Sarama calls. It is meant for tracing; through it each claim comes
// to us first, and watermill-kafka sees a session and a claim that end when ours do.
type seam struct{ m *member }

var _ wmkafka.SaramaTracer = seam{}

// WrapConsumerGroupHandler is called for each connection of the member. One that follows another without a session
// between them waits: watermill-kafka would connect anew without a pause when its group refuses it.
func (t seam) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	m := t.m
	if m.connects > 0 {
		m.s.wait(context.Background(), backoff.Exponential(firstRetry, lastRetry, m.connects-1))
	}
	m.connects++
	return &handler{m: m, stock: h}
}

// The others are for publishers and for consumers without a group.

// WrapConsumer implements wmkafka.SaramaTracer.
func (seam) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }

// WrapPartitionConsumer implements wmkafka.SaramaTracer.
func (seam) WrapPartitionConsumer(c sarama.PartitionConsumer) sarama.PartitionConsumer { return c }

// WrapSyncProducer implements wmkafka.SaramaTracer.
func (seam) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer { return p }

// handler stands between Sarama and watermill-kafka's handler.
type handler struct {
	m     *member
	stock sarama.ConsumerGroupHandler
	began time.Time // the session
}

// Setup begins a session: once the topic is known to be what it was, and the offsets to be in the log. Sarama's heartbeats
// go on meanwhile, so a member that waits here keeps its place and reads nothing.
func (h *handler) Setup(sess sarama.ConsumerGroupSession) error {
	h.m.connects = 0
	// A session that fails as soon as it has begun is followed by the next without a pause.
	if n := h.m.failures; n == 0 || h.m.s.wait(sess.Context(), backoff.Exponential(firstRetry, lastRetry, n-1)) {
		h.m.anew.Store(false)
		later, ok := h.m.check(sess)
		h.m.moveOn(sess, later)
		h.m.joined.Store(ok)
	}
	h.began = time.Now()
	return h.stock.Setup(sess)
}

// Cleanup ends a session.
func (h *handler) Cleanup(sess sarama.ConsumerGroupSession) error {
	if h.m.joined.Swap(false) { // of another session that finds the topic made anew, others may have begun the new one
		h.m.rewind(sess)
	}
	if rebalanced(context.Cause(sess.Context())) || time.Since(h.began) > goodSession {
		h.m.failures = 0
	} else {
		h.m.failures++
	}
	return h.stock.Cleanup(sess)
}

// ConsumeClaim runs for as long as the member owns the partition. To return before would end the session, for all of its
// partitions.
func (h *handler) ConsumeClaim(sess sarama.ConsumerGroupSession, from sarama.ConsumerGroupClaim) error {
	var o *owned
	if h.m.joined.Load() {
		o = h.m.add(sess, from)
	}
	if o == nil { // the session ends before it has begun, or the Subscriber stops
		<-sess.Context().Done()
		return nil
	}
	defer h.m.remove(o)
	o.tell("assigned")
	go o.feed()
	err := h.stock.ConsumeClaim(o.session, o.claim())
	close(o.returned)
	o.end() // as a rule it has ended already
	<-o.concluded
	o.tell(o.event)
	return err
}

// session is Sarama's, ending later for watermill-kafka: with the claim. Its own ends at the first sign of a rebalance,
// and watermill-kafka would drop what is acknowledged from then on.
type session struct {
	sarama.ConsumerGroupSession

	ctx    context.Context
	cancel context.CancelFunc
	marked chan struct{} // has a token once the record in hand is marked
}

// Context implements sarama.ConsumerGroupSession.
func (s *session) Context() context.Context { return s.ctx }

// MarkMessage implements sarama.ConsumerGroupSession.
func (s *session) MarkMessage(m *sarama.ConsumerMessage, metadata string) {
	s.ConsumerGroupSession.MarkMessage(m, metadata)
	select {
	case s.marked <- struct{}{}:
	default:
	}
}

// unmarshaler keeps nothing of the record: the claim has it. It cannot fail: watermill-kafka would leave and join its
// group for ever on one record.
type unmarshaler struct{}

// Unmarshal implements wmkafka.Unmarshaler.
func (unmarshaler) Unmarshal(m *sarama.ConsumerMessage) (*message.Message, error) {
	return message.NewMessage(m.Topic+"/"+strconv.Itoa(int(m.Partition))+"/"+strconv.FormatInt(m.Offset, 10), nil), nil
}
