package stock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/kafka/internal/route"
	"github.com/headrace/headrace/record"
)

// joinQuiet is how long nobody must have subscribed before the group is joined.
const joinQuiet = 100 * time.Millisecond

// Subscriber reads topics with watermill-kafka's Subscriber, one of it and so one group member for each topic, and hands
// their records on as messages of one. It is safe for concurrent use. Whoever made it ends it with Stop or Close.
type Subscriber struct {
	cfg    kafka.SourceConfig
	sarama *sarama.Config
	lookup *kgo.Client
	admin  *kadm.Client // of lookup

	mu       sync.Mutex
	routes   route.Table
	members  map[string]*member // by topic
	claims   map[*owned]struct{}
	joining  *time.Timer
	stopping bool

	problems problems

	running context.Context // ends when the Subscriber begins to stop
	quit    context.CancelFunc
	grace   context.Context // ends when what runs at a stop has had its time
	hurry   context.CancelFunc
	stopped atomic.Bool // somebody runs shutDown
	loops   sync.WaitGroup
	senders sync.WaitGroup // subscriptions that have not closed their channel
	done    chan struct{}
	err     error // valid once done is closed
	gaveUp  atomic.Pointer[error]
}

var (
	_ message.Subscriber = (*Subscriber)(nil)
	_ kafka.Transport    = (*Subscriber)(nil)
)

// NewSubscriber checks cfg and makes a Subscriber. It speaks to no broker before a topic is subscribed.
func NewSubscriber(cfg Config) (*Subscriber, error) {
	cfg, client, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	lookup, err := kgo.NewClient(append(cfg.Source.Client.Options(), kgo.MetadataMinAge(lookupMinAge))...)
	if err != nil {
		return nil, fmt.Errorf("kafka stock: %w", err)
	}
	s := &Subscriber{
		cfg: cfg.Source, sarama: client, lookup: lookup, admin: kadm.NewClient(lookup),
		routes: make(route.Table), members: make(map[string]*member), claims: make(map[*owned]struct{}),
		problems: problems{at: make(map[place]*problem)},
		done:     make(chan struct{}),
	}
	s.running, s.quit = context.WithCancel(context.Background())
	s.grace, s.hurry = context.WithCancel(context.Background())
	return s, nil
}

// Subscribe gives the records of topic until ctx or the Subscriber ends; then the channel is closed. It is the Subscribe
// of the zero kafka.Subscription, and keeps what kafka.Source.Subscribe promises.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := s.subscribe(ctx, topic, kafka.Subscription{})
	if err != nil {
		return nil, err
	}
	return sub.Messages(), nil
}

// Subscriber is one route's own view. Its Close ends its subscriptions, not the Subscriber. Of sub, MaxBatch and Lanes are
// 1 and Order is ByPartition, whatever it says.
func (s *Subscriber) Subscriber(sub kafka.Subscription) message.Subscriber {
	return route.NewView(func(ctx context.Context, topic string) (*route.Subscription, error) {
		return s.subscribe(ctx, topic, sub)
	})
}

func (s *Subscriber) subscribe(ctx context.Context, topic string, sub kafka.Subscription) (*route.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, kafka.ErrClosed
	}
	r := s.routes.For(topic, s.routeConfig(sub))
	next := r.Subscribe(ctx)
	s.senders.Go(func() { <-next.Finished() })
	for o := range s.claims {
		if o.Topic == topic {
			o.addLine(r)
		}
	}
	s.scheduleJoin()
	return next, nil
}

func (s *Subscriber) routeConfig(sub kafka.Subscription) route.Config {
	attempt := sub.AttemptTimeout
	if attempt <= 0 {
		attempt = s.cfg.MaxPollInterval
	}
	cfg := route.Config{
		Line: claim.LineConfig{
			Name: sub.Name, Order: claim.ByPartition, MaxBatch: 1, Lanes: 1, Replay: sub.Replay,
			Patience: min(attempt+s.cfg.HardGrace, s.cfg.MaxPollInterval),
		},
		Started: sub.Started, DrainGrace: s.cfg.DrainGrace, HardGrace: s.cfg.HardGrace, Report: s.cfg.Hooks.Report,
	}
	for _, g := range sub.Gates {
		cfg.Gates = append(cfg.Gates, g)
	}
	return cfg
}

// scheduleJoin joins when nobody has subscribed for a while and every configured subscription is there: each further
// member would rebalance the group, and each further route of a topic would miss what was read before it. With mu held.
func (s *Subscriber) scheduleJoin() {
	if !s.routes.Complete(s.cfg.Topics, s.cfg.Subscriptions) {
		return
	}
	if s.joining == nil {
		s.joining = time.AfterFunc(joinQuiet, s.join)
		return
	}
	s.joining.Reset(joinQuiet)
}

// join makes the members of topics that have none.
func (s *Subscriber) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	if len(s.members) == 0 {
		s.loops.Go(s.tend)
		s.loops.Go(s.watchCoordinator)
		s.loops.Go(s.watchTopics)
	}
	for topic := range s.routes {
		if s.members[topic] == nil {
			m, err := newMember(s, topic)
			if err != nil {
				go s.fail(fmt.Errorf("kafka stock: %w", err))
				return
			}
			s.members[topic] = m
			go m.run()
		}
	}
}

// Stop ends the Subscriber in good order: nothing begins any more, what runs may finish within DrainGrace or until ctx
// ends, whichever is first; then its contexts end with record.ErrStopping, the offsets are committed, the members leave
// the group and every channel of Subscribe is closed. A second call waits for the first.
//
// While a join is pending, Sarama can neither commit nor leave. Stop waits for it no longer than CommitReserve and two
// seconds, and leaves it to end by itself.
func (s *Subscriber) Stop(ctx context.Context) error {
	if s.stopped.CompareAndSwap(false, true) {
		s.shutDown(ctx, nil)
	}
	<-s.done
	return s.err
}

// Close is Stop with DrainGrace alone.
func (s *Subscriber) Close() error { return s.Stop(context.Background()) }

// fail ends the Subscriber by itself.
func (s *Subscriber) fail(err error) {
	s.gaveUp.CompareAndSwap(nil, &err)
	if s.stopped.CompareAndSwap(false, true) {
		s.shutDown(context.Background(), err)
	}
}

// Done closes when the Subscriber has ended, by Stop or by itself; Err then says why.
func (s *Subscriber) Done() <-chan struct{} { return s.done }

// Err is why the Subscriber ended by itself, nil if it did not.
func (s *Subscriber) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

func (s *Subscriber) quitting() bool { return s.running.Err() != nil }

// wait gives time, and reports false when the Subscriber stops or ctx ends meanwhile.
func (s *Subscriber) wait(ctx context.Context, d time.Duration) bool {
	return backoff.WaitUnless(ctx, d, s.running.Done())
}

// shutDown runs once. Order matters: the claims end while watermill-kafka still takes their answers; once it is closing,
// it throws an answer away as often as not.
func (s *Subscriber) shutDown(ctx context.Context, cause error) {
	s.mu.Lock()
	s.stopping = true
	if s.joining != nil {
		s.joining.Stop()
	}
	claims := s.allClaims()
	s.mu.Unlock()
	s.quit()
	defer context.AfterFunc(ctx, s.hurry)()
	for _, o := range claims {
		o.EndSoft(record.ErrStopping)
	}
	for _, o := range claims {
		<-o.concluded
	}
	s.hurry()
	s.loops.Wait()
	s.mu.Lock()
	s.routes.End()
	s.mu.Unlock()
	s.closeMembers()
	s.senders.Wait()
	s.admin.Close()
	s.err = cause
	close(s.done)
}

// errSlowLeave is told when Sarama does not come to an end.
var errSlowLeave = errors.New("a rebalance is pending")

// closeMembers lets every member commit and leave.
func (s *Subscriber) closeMembers() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		var wg sync.WaitGroup
		for _, m := range s.members { // nobody adds one any more
			wg.Go(m.close)
		}
		wg.Wait()
	}()
	patience := time.NewTimer(s.cfg.CommitReserve + leaveTimeout)
	defer patience.Stop()
	select {
	case <-left:
	case <-patience.C:
		s.cfg.Logger.Warn("kafka stock: the members have not left the group in time; their partitions idle until they have",
			"group", s.cfg.Group, "err", errSlowLeave)
	}
}

// leaveTimeout is for the way out of the group, beside CommitReserve.
const leaveTimeout = 2 * time.Second

// allClaims are those that run. With mu held.
func (s *Subscriber) allClaims() []*owned {
	all := make([]*owned, 0, len(s.claims))
	for o := range s.claims {
		all = append(all, o)
	}
	return all
}
