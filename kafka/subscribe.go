package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// route is a named subscription of one topic. It outlives the subscriptions that serve it: what one leaves unsettled
// waits here, and holds the offset, until the next of its name comes.
type route struct {
	topic string
	sub   Subscription
	cur   *subscription // the current or the last one

	reported bool // that nobody serves it; guarded by Source.mu
}

// subscription is one call of Subscribe.
type subscription struct {
	sub      Subscription
	ctx      context.Context
	before   *subscription // whose deliveries must have ended first; nil for none
	out      chan *message.Message
	done     chan struct{} // closed: nothing is sent any more
	finished chan struct{} // closed: out is closed

	mu      sync.Mutex
	senders sync.WaitGroup
	ended   time.Time
}

// Subscribe gives the records of topic, in messages of one, until ctx or the Source ends; then the channel is closed.
// Each subscription of a topic gets every record. It is the Subscriber of the zero Subscription.
//
// A message's context has the values of ctx but not its end: it ends with record.ErrRevoked, record.ErrLost or
// record.ErrStopping as its cause when the partition's claim does and the grace is over. An Ack settles the record; a
// Nack gives it back.
func (s *Source) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := s.subscribe(ctx, topic, Subscription{})
	if err != nil {
		return nil, err
	}
	return sub.out, nil
}

// Subscriber is one route's own view of the Source. Its Close ends its subscriptions, not the Source.
func (s *Source) Subscriber(sub Subscription) message.Subscriber {
	return &view{source: s, sub: sub}
}

// view is a Source as one route sees it.
type view struct {
	source *Source
	sub    Subscription

	mu   sync.Mutex
	subs []*subscription
}

func (v *view) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := v.source.subscribe(ctx, topic, v.sub)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.subs = append(v.subs, sub)
	return sub.out, nil
}

func (v *view) Close() error {
	v.mu.Lock()
	subs := slices.Clone(v.subs)
	v.mu.Unlock()
	for _, sub := range subs {
		sub.end()
		<-sub.finished
	}
	return nil
}

func (s *Source) subscribe(ctx context.Context, topic string, sub Subscription) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, ErrClosed
	}
	r := s.routeFor(topic, sub.withDefaults(s.cfg))
	next := &subscription{
		sub: r.sub, ctx: ctx, before: r.cur, out: make(chan *message.Message),
		done: make(chan struct{}), finished: make(chan struct{}),
	}
	r.cur, r.reported = next, false
	unwatch := context.AfterFunc(ctx, next.end)
	s.senders.Go(func() {
		defer unwatch()
		next.finish()
	})
	for at, o := range s.claims {
		if at.topic == topic {
			s.addLine(o, r)
		}
	}
	s.scheduleJoin()
	return next, nil
}

// routeFor gives the route of that name that nobody serves any more, or a new one. With Source.mu held.
func (s *Source) routeFor(topic string, sub Subscription) *route {
	for _, r := range s.routes[topic] {
		if r.sub.Name == sub.Name && r.cur.over() {
			return r
		}
	}
	r := &route{topic: topic, sub: sub}
	s.routes[topic] = append(s.routes[topic], r)
	return r
}

// scheduleJoin joins the group when nobody has subscribed for a while and every configured topic is subscribed. With
// Source.mu held.
func (s *Source) scheduleJoin() {
	for _, topic := range s.cfg.Topics {
		if len(s.routes[topic]) == 0 {
			return
		}
	}
	if s.joining == nil {
		s.joining = time.AfterFunc(joinQuiet, s.join)
		return
	}
	s.joining.Reset(joinQuiet)
}

// enter says whether one more sender may use the subscription; it calls senders.Done in the end.
func (sub *subscription) enter() bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if !sub.ended.IsZero() {
		return false
	}
	sub.senders.Add(1)
	return true
}

func (sub *subscription) end() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.ended.IsZero() {
		sub.ended = time.Now()
		close(sub.done)
	}
}

func (sub *subscription) over() bool {
	select {
	case <-sub.done:
		return true
	default:
		return false
	}
}

// finish closes the channel when the last sender is gone.
func (sub *subscription) finish() {
	<-sub.done
	sub.senders.Wait()
	close(sub.out)
	close(sub.finished)
}
