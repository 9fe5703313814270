package route

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Subscription is one call of Subscribe. It is safe for concurrent use.
type Subscription struct {
	cfg      Config
	ctx      context.Context
	before   *Subscription // whose deliveries must have ended first; nil for none
	out      chan *message.Message
	done     chan struct{} // closed: nothing is sent any more
	finished chan struct{} // closed: out is closed

	mu      sync.Mutex
	senders sync.WaitGroup
	ended   time.Time
}

func newSubscription(ctx context.Context, cfg Config, before *Subscription) *Subscription {
	sub := &Subscription{
		cfg: cfg, ctx: ctx, before: before, out: make(chan *message.Message),
		done: make(chan struct{}), finished: make(chan struct{}),
	}
	unwatch := context.AfterFunc(ctx, sub.End)
	go func() {
		defer unwatch()
		sub.finish()
	}()
	return sub
}

// Messages is closed when the subscription is Finished.
func (sub *Subscription) Messages() <-chan *message.Message { return sub.out }

// Finished closes when the subscription has ended and nothing is sent any more.
func (sub *Subscription) Finished() <-chan struct{} { return sub.finished }

// enter says whether one more sender may use the subscription; it calls senders.Done in the end.
func (sub *Subscription) enter() bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if !sub.ended.IsZero() {
		return false
	}
	sub.senders.Add(1)
	return true
}

// End begins the end: nothing more is sent.
func (sub *Subscription) End() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.ended.IsZero() {
		sub.ended = time.Now()
		close(sub.done)
	}
}

func (sub *Subscription) over() bool {
	select {
	case <-sub.done:
		return true
	default:
		return false
	}
}

func (sub *Subscription) endedFor() time.Duration {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return time.Since(sub.ended)
}

// finish closes the channel when the last sender is gone.
func (sub *Subscription) finish() {
	<-sub.done
	sub.senders.Wait()
	close(sub.out)
	close(sub.finished)
}

// View is a transport as one route sees it: its Close ends its subscriptions, not the transport.
type View struct {
	subscribe func(ctx context.Context, topic string) (*Subscription, error)

	mu   sync.Mutex
	subs []*Subscription
}

var _ message.Subscriber = (*View)(nil)

// NewView makes a View whose subscriptions come from subscribe.
func NewView(subscribe func(ctx context.Context, topic string) (*Subscription, error)) *View {
	return &View{subscribe: subscribe}
}

// Subscribe implements message.Subscriber.
func (v *View) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := v.subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.subs = append(v.subs, sub)
	return sub.out, nil
}

// Close implements message.Subscriber.
func (v *View) Close() error {
	v.mu.Lock()
	subs := slices.Clone(v.subs)
	v.mu.Unlock()
	for _, sub := range subs {
		sub.End()
		<-sub.finished
	}
	return nil
}
