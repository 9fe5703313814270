package stock

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/kafka/internal/route"
	"github.com/headrace/headrace/record"
)

// owned is a partition that Sarama has claimed. One record of it is in hand at a time: that is what watermill-kafka gives.
//
//	Sarama ─► feed ─► watermill-kafka's handler ─► its channel ─► arrived ─► the claim's lines ─► the routes' messages
//	            ◄──── marked ◄──── Ack ◄───────────────────────── every line has settled it ◄──┘
//
// watermill-kafka's message is answered once, with an Ack, when every route has settled the record. A record that is given
// back comes again from the claim; watermill-kafka, whose Nack would loop on a partition that has gone, is not asked.
type owned struct {
	*claim.Claim

	m         *member
	sess      sarama.ConsumerGroupSession
	from      sarama.ConsumerGroupClaim
	session   *session                     // what watermill-kafka sees of sess
	out       chan *sarama.ConsumerMessage // what it sees of from; closed when it is to let the claim go
	arrived   chan *message.Message        // what came out of it
	settled   chan struct{}                // has a token once every line has settled the record in hand
	returned  chan struct{}                // closed: watermill-kafka has let the claim go
	concluded chan struct{}                // closed: the claim is closed, and event is valid
	lines     map[*route.Route]*claim.Line // guarded by Subscriber.mu
	hand      *sarama.ConsumerMessage      // given to watermill-kafka and not answered
	vouched   int                          // how many more of from's are known to be of the topic, see vouch
	leader    int32                        // that was asked last
	event     string
}

func newOwned(m *member, sess sarama.ConsumerGroupSession, from sarama.ConsumerGroupClaim) *owned {
	o := &owned{
		m: m, sess: sess, from: from, leader: anyBroker,
		out: make(chan *sarama.ConsumerMessage), arrived: make(chan *message.Message, 1), settled: make(chan struct{}, 1),
		returned: make(chan struct{}), concluded: make(chan struct{}), lines: make(map[*route.Route]*claim.Line),
	}
	o.session = &session{ConsumerGroupSession: sess, marked: make(chan struct{}, 1)}
	o.session.ctx, o.session.cancel = context.WithCancel(context.WithoutCancel(sess.Context()))
	// A claim of one record is full with it, and low again when every line has settled it.
	o.Claim = claim.New(claim.Config{Topic: m.topic, TopicID: m.id(), Partition: from.Partition(), OnLow: func() {
		select {
		case o.settled <- struct{}{}:
		default:
		}
	}}, claim.Limit{Records: 1, Bytes: 1 << 62})
	context.AfterFunc(sess.Context(), o.sessionEnded)
	return o
}

// addLine gives the route its line and starts to deliver. With Subscriber.mu held.
func (o *owned) addLine(r *route.Route) {
	if o.lines[r] == nil {
		o.lines[r] = o.NewLine(r.Line)
	}
	r.Serve(o.Claim, o.lines[r])
}

// sessionEnded begins the end. A partition that is lost, and not revoked, may have another owner already.
func (o *owned) sessionEnded() {
	if lost(context.Cause(o.sess.Context())) {
		o.Close(record.ErrLost) // nothing of it can be committed
	}
	o.EndSoft(record.ErrRevoked)
}

// end begins the end for whatever reason there is. That the session has ended may not have been told yet.
func (o *owned) end() {
	if o.sess.Context().Err() != nil {
		o.sessionEnded()
		return
	}
	_, cause := o.ending()
	o.EndSoft(cause)
}

// lost says whether the broker, or Sarama, has given the member up. Only a rebalance and an end of our own are orderly:
// there the member keeps its partitions until it joins again.
func lost(cause error) bool {
	return !rebalanced(cause) && !errors.Is(cause, context.Canceled) && !errors.Is(cause, sarama.ErrSessionConsumeClaimExited)
}

func rebalanced(cause error) bool {
	return errors.Is(cause, sarama.ErrRebalanceInProgress) || errors.Is(cause, sarama.ErrSessionPartitionCountChanged)
}

// feed gives the records of the claim to watermill-kafka, one after the other, until the claim ends.
func (o *owned) feed() {
	for o.next() {
	}
	o.conclude()
	o.letGo()
}

// next takes one record through, and reports false when the claim ends. What is in hand then is settled or given up by
// conclude.
func (o *owned) next() bool {
	m, ok := receive(o, o.from.Messages())
	if !ok || !o.vouch() {
		return false
	}
	select {
	case o.out <- m:
		o.hand = m
	case <-o.Soft():
		return false
	}
	o.Add([]*kgo.Record{recordOf(m)})
	if _, ok := receive(o, o.settled); !ok {
		return false
	}
	o.answer()
	return true
}

// receive waits for c, and reports false when it is closed or the claim ends.
func receive[T any](o *owned, c <-chan T) (T, bool) {
	// The end comes first: what Sarama has buffered is not to begin any more.
	select {
	case <-o.Soft():
		var none T
		return none, false
	default:
	}
	select {
	case v, ok := <-c:
		return v, ok
	case <-o.Soft():
		var none T
		return none, false
	}
}

// answer tells watermill-kafka that the record in hand is done, and waits until it has marked it.
func (o *owned) answer() {
	select {
	case msg := <-o.arrived:
		msg.Ack()
	case <-o.returned:
		return
	}
	select {
	case <-o.session.marked:
		o.hand = nil
	case <-o.returned: // it was closed
	}
}

// conclude ends the claim: what runs may finish within the grace, its context ends, the claim closes.
func (o *owned) conclude() {
	o.end() // Sarama may have given up the partition alone
	if _, cause := o.ending(); !errors.Is(cause, record.ErrLost) {
		o.drain(cause)
	}
	event, cause := o.ending() // it may have been lost meanwhile
	mark, ok := o.Close(cause)
	if o.hand != nil && ok && mark.Offset > o.hand.Offset {
		o.answer()
	}
	o.event = event
	close(o.concluded)
}

func (o *owned) ending() (event string, cause error) {
	switch {
	case errors.Is(context.Cause(o.Hard()), record.ErrLost):
		return "lost", record.ErrLost
	case o.m.s.quitting():
		return "stopped", record.ErrStopping
	default:
		return "revoked", record.ErrRevoked
	}
}

// drain waits for what is in hand: first within the grace, then, its context ended, within HardGrace.
func (o *owned) drain(cause error) {
	grace, cancel := context.WithTimeout(o.m.s.grace, o.m.s.cfg.DrainGrace)
	defer cancel()
	select {
	case <-o.Drained():
		return
	case <-grace.Done():
	case <-o.Hard().Done(): // lost meanwhile
	}
	o.EndHard(cause)
	hard := time.NewTimer(o.m.s.cfg.HardGrace)
	defer hard.Stop()
	select {
	case <-o.Drained():
	case <-hard.C:
		o.m.s.cfg.Logger.Warn("kafka stock: a claim ends without a handler that ignores its context",
			"group", o.m.s.cfg.Group, "topic", o.Topic, "partition", o.Partition)
	}
}

// letGo makes watermill-kafka let the claim go. What it has in hand and is not settled, it must leave unmarked: its
// session ends before it gets its answer.
//
// A claim that lets go before its session ends would end it, and watermill-kafka would join again at once: at a stop the
// session is ended by its Close, which comes after this.
func (o *owned) letGo() {
	if o.m.s.quitting() {
		<-o.sess.Context().Done()
	}
	o.session.cancel()
	close(o.out)
	if o.hand == nil {
		return
	}
	select {
	case msg := <-o.arrived:
		msg.Ack()
	case <-o.returned:
	}
}

func (o *owned) tell(event string) {
	if f := o.m.s.cfg.Hooks.OnClaim; f != nil {
		f(record.ClaimInfo{Topic: o.Topic, Partition: o.Partition, Event: event})
	}
}

// claim is what watermill-kafka sees of the partition.
func (o *owned) claim() sarama.ConsumerGroupClaim { return narrowed{o.from, o.out} }

// narrowed is a claim that gives what it is given.
type narrowed struct {
	sarama.ConsumerGroupClaim

	out <-chan *sarama.ConsumerMessage
}

// Messages implements sarama.ConsumerGroupClaim.
func (n narrowed) Messages() <-chan *sarama.ConsumerMessage { return n.out }

// recordOf is the record as Kafka delivered it: headers in order, with duplicates, nil apart from empty.
func recordOf(m *sarama.ConsumerMessage) *kgo.Record {
	r := &kgo.Record{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, LeaderEpoch: -1,
		Timestamp: timestamp(m.Timestamp), Key: m.Key, Value: m.Value,
	}
	if len(m.Headers) > 0 {
		r.Headers = make([]kgo.RecordHeader, 0, len(m.Headers))
	}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
	}
	return r
}

// timestamp is t as Kafka stores it, -1 for none.
func timestamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.UnixMilli(-1)
	}
	return time.UnixMilli(t.UnixMilli())
}
