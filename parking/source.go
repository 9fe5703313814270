package parking

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/record"
)

// ErrClosed reports a use of a Source that is closed. Match with errors.Is.
var ErrClosed = errors.New("parking source is closed")

// Gate can keep parked records from being tried, for example while something that they need is down.
type Gate interface {
	// Shut says whether nothing may begin. It must not block.
	Shut() bool
	// Watch calls f whenever Shut may have changed, until stop is called. f does not block.
	Watch(f func()) (stop func())
}

// SourceConfig is how a route wants its parked records. The zero value is usable.
type SourceConfig struct {
	// Route is the route's name, for reports.
	Route string
	// MaxBatch is how many records a message may carry, of as many keys as they have. Only a handler that knows of
	// record.Records may see more than one.
	//
	// Defaults to 1.
	MaxBatch int
	// MaxBytes is about how many bytes of records a message may carry.
	//
	// Defaults to 16 MiB.
	MaxBytes int64
	// Lanes is how many messages run side by side. One whose records all wait, for a back-off or a dependency, occupies none.
	//
	// Defaults to 2.
	Lanes int
	// Poll is how often it is looked whether something is due, while nothing is.
	//
	// Defaults to 1 s.
	Poll time.Duration
	// Gates must all be open for anything to be claimed: a record that would only be held spends no round.
	//
	// Defaults to none.
	Gates []Gate
	// DrainGrace is how long handlers may finish after Close or the end of Subscribe's context; then their context ends with
	// record.ErrStopping. HardGrace later their keys are given back all the same.
	//
	// Default to 10 s and 5 s.
	DrainGrace, HardGrace time.Duration
	// Report is told what an operator must know.
	//
	// Defaults to nothing.
	Report func(record.Report)
}

// maxHeld is how many messages may be out, of which all but Lanes wait.
const maxHeld = 20

func (c SourceConfig) withDefaults() SourceConfig {
	c.MaxBatch, c.Lanes = or(c.MaxBatch, 1), or(c.Lanes, 2)
	c.MaxBytes = or(c.MaxBytes, 16<<20)
	c.Poll = or(c.Poll, time.Second)
	c.DrainGrace, c.HardGrace = or(c.DrainGrace, 10*time.Second), or(c.HardGrace, 5*time.Second)
	if c.Report == nil {
		c.Report = func(record.Report) {}
	}
	return c
}

// Source hands a route's parked records to a Watermill handler when they are due: it is a Subscriber beside the one of the
// route's topic, for a handler with the same stack. It is safe for concurrent use. Whoever made it closes it.
//
// A message carries records of one or more keys, of each key the first ones, in order. They settle and wait like those of
// kafka.Source: an Ack settles a message of one, a Nack gives back. What is given back is due again after a moment and has
// spent no round.
type Source struct {
	store *Store
	cfg   SourceConfig

	quit   chan struct{}
	feeds  sync.WaitGroup
	mu     sync.Mutex
	closed bool
	wake   chan struct{} // one token: there may be a free lane, or an open gate
	lanes  int           // free ones
	alone  int           // claims under way that may bring a suspect
	works  map[*work]struct{}
	queue  []*resume
	debts  []debt
}

var _ message.Subscriber = (*Source)(nil)

// NewSource makes the Source of store's route. It asks the database for nothing before Subscribe.
func NewSource(store *Store, cfg SourceConfig) *Source {
	cfg = cfg.withDefaults()
	return &Source{
		store: store, cfg: cfg, lanes: cfg.Lanes, works: make(map[*work]struct{}),
		quit: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// Subscribe gives what is parked, whatever topic it was read from, until ctx or the Source ends; then the channel is
// closed, once everything that was handed out is finished or given back. topic is for logs only: there is one parking a
// route.
//
// A message's context has the values of ctx but not its end: it ends with record.ErrStopping when DrainGrace is over.
func (s *Source) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{Source: s, ctx: ctx, out: make(chan *message.Message)}
	s.feeds.Go(func() {
		defer cancel()
		f.run()
	})
	go func() {
		select {
		case <-s.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	return f.out, nil
}

// Close ends every subscription and waits for what runs, for the graces at most. It always returns nil.
func (s *Source) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
	s.mu.Unlock()
	s.feeds.Wait()
	return nil
}

// Longest is the record whose running attempt began first, and how long ago; nil while none runs.
func (s *Source) Longest() (longest *record.Record, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.works {
		for _, r := range w.records {
			if since, runs := r.RunningSince(); runs && !r.Settled() && time.Since(since) > took {
				longest, took = r, time.Since(since)
			}
		}
	}
	return longest, took
}

func (s *Source) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
