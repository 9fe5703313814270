package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka/internal/route"
)

// ErrClosed reports a use of a Source that has stopped. Match with errors.Is.
var ErrClosed = errors.New("source is closed")

// joinQuiet is how long nobody must have subscribed before the Source joins its group.
const joinQuiet = 100 * time.Millisecond

// Source reads topics as one member of a consumer group and hands their records to Watermill handlers. It is safe for
// concurrent use. Whoever made it ends it with Stop or Close.
type Source struct {
	cfg    SourceConfig
	root   context.Context // the client's: its end cuts off everything that is under way
	cancel context.CancelFunc

	mu       sync.Mutex
	routes   route.Table
	claims   map[tp]*owned
	ids      map[string]uuid.UUID // by topic, as first seen
	client   *kgo.Client          // nil before the join
	joining  *time.Timer
	stopping bool
	silenced map[tp]resumption   // claims that ended because the coordinator was silent
	anew     map[string]struct{} // topics that were created again and are being left to be read anew
	atEnd    map[string]struct{} // topics that were created again and begin at their ends

	fence    *fence
	commits  token         // whoever holds it may snapshot and commit
	ending   token         // one end of claims at a time
	flowMu   sync.Mutex    // pausing and resuming follow each other
	flowing  chan struct{} // one token: a claim has room again
	pulse    pulse
	problems problems
	losses   *losses

	quit    chan struct{} // closed when the Source begins to stop
	stopped atomic.Bool   // somebody runs shutDown
	loops   sync.WaitGroup
	senders sync.WaitGroup // subscriptions that have not closed their channel
	done    chan struct{}
	err     error // valid once done is closed
	gaveUp  atomic.Pointer[error]
}

var _ message.Subscriber = (*Source)(nil)

// tp names a partition.
type tp struct {
	topic     string
	partition int32
}

// NewSource checks cfg and makes a Source. It speaks to no broker before a topic is subscribed.
func NewSource(cfg SourceConfig) (*Source, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("kafka source: %w", err)
	}
	if err := kgo.ValidateOpts(cfg.clientOptions()...); err != nil {
		return nil, fmt.Errorf("kafka source: %w", err)
	}
	s := &Source{
		cfg:    cfg,
		routes: make(route.Table), claims: make(map[tp]*owned), ids: make(map[string]uuid.UUID),
		silenced: make(map[tp]resumption), anew: make(map[string]struct{}), atEnd: make(map[string]struct{}), losses: newLosses(),
		commits: newToken(), ending: newToken(), flowing: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	s.root, s.cancel = context.WithCancel(context.Background())
	s.fence = newFence()
	return s, nil
}

// join makes the group member, or tells it of topics that were subscribed since.
func (s *Source) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	topics := make([]string, 0, len(s.routes))
	for topic := range s.routes {
		topics = append(topics, topic)
	}
	if s.client != nil {
		s.client.AddConsumeTopics(topics...)
		return
	}
	opts := append(s.cfg.clientOptions(),
		kgo.WithContext(s.root),
		kgo.WithHooks(&s.pulse, groupErrors{s}),
		kgo.ConsumeTopics(topics...),
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.lost),
	)
	if s.cfg.Begin != nil || s.cfg.OnOffsetLoss == LossNewest {
		opts = append(opts, kgo.AdjustFetchOffsetsFn(s.begin))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		go s.fail(fmt.Errorf("kafka source: %w", err))
		return
	}
	s.client = client
	s.loops.Go(s.poll)
	s.loops.Go(s.commitLoop)
	s.loops.Go(s.tend)
	s.loops.Go(s.watchEnds)
	s.loops.Go(s.watchLosses)
}

// Stop ends the Source in good order: nothing begins any more, what runs may finish within DrainGrace or until ctx
// ends, whichever is first; then its contexts end with record.ErrStopping, the offsets are committed, the member leaves
// its group and every channel of Subscribe is closed. It returns when all of that is done. A second call waits for the
// first. The error is why the Source had given up by itself, nil otherwise: last offsets that could not be committed are in
// the log, and their records come again.
func (s *Source) Stop(ctx context.Context) error {
	if s.stopped.CompareAndSwap(false, true) {
		s.shutDown(ctx, nil)
	}
	<-s.done
	return s.err
}

// Close is Stop with DrainGrace alone.
func (s *Source) Close() error { return s.Stop(context.Background()) }

// fail ends the Source by itself.
func (s *Source) fail(err error) {
	s.gaveUp.CompareAndSwap(nil, &err)
	if s.stopped.CompareAndSwap(false, true) {
		s.shutDown(context.Background(), err)
	}
}

// Done closes when the Source has ended, by Stop or by itself; Err then says why.
func (s *Source) Done() <-chan struct{} { return s.done }

// Err is why the Source ended by itself, nil if it did not.
func (s *Source) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}
