package kafka

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/kafka/internal/route"
)

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
	return sub.Messages(), nil
}

// Subscriber is one route's own view of the Source. Its Close ends its subscriptions, not the Source.
func (s *Source) Subscriber(sub Subscription) message.Subscriber {
	return route.NewView(func(ctx context.Context, topic string) (*route.Subscription, error) {
		return s.subscribe(ctx, topic, sub)
	})
}

func (s *Source) subscribe(ctx context.Context, topic string, sub Subscription) (*route.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, ErrClosed
	}
	r := s.routes.For(topic, sub.withDefaults(s.cfg).route(s.cfg))
	next := r.Subscribe(ctx)
	s.senders.Go(func() { <-next.Finished() })
	for at, o := range s.claims {
		if at.topic == topic {
			s.addLine(o, r)
		}
	}
	s.scheduleJoin()
	return next, nil
}

// scheduleJoin joins the group when nobody has subscribed for a while and every configured subscription is there: a route
// that comes later misses what those before it have settled. With Source.mu held.
func (s *Source) scheduleJoin() {
	if !s.routes.Complete(s.cfg.Topics, s.cfg.Subscriptions) {
		return
	}
	if s.joining == nil {
		s.joining = time.AfterFunc(joinQuiet, s.join)
		return
	}
	s.joining.Reset(joinQuiet)
}
