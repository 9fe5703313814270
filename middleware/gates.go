package middleware

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// Gates are the gates of one route: the database's, the dead letter topic's, and those that come up by name, when a
// handler returns fault.Unavailable. Together they are what the scheduler asks: while one of them is shut it begins
// nothing of the route, because every record that it began would end up in memory, waiting. The dead letter topic's is in
// the way of dead records alone, until 1,000 of the route wait there.
//
// Gates is safe for concurrent use. One that has gates of others, by NewGates or by a called Dependency, must be closed when
// its route has ended: they tell it of changes, and would hold on to it for as long as they live.
type Gates struct {
	cfg  downstream.GateConfig
	list atomic.Pointer[[]*downstream.Gate] // replaced, never changed
	// called is the gate of the dependency that the route calls, nil for none. It shuts the route as the others do, but a
	// pass of it is for one call.
	called *downstream.Gate
	doubts doubts
	// letters are the records that wait for the dead letter topic; full is since when these are too many, in Unix nanoseconds.
	letters atomic.Int64
	full    atomic.Int64
	unsent  atomic.Pointer[error] // what the last of them that began to wait was not written for

	mu       sync.Mutex
	watchers map[int]func()
	nextID   int
	unwatch  []func()
	closed   bool
}

// NewGates makes the gates of a route. cfg, but for its name, is for those that are not in shared: give the one gate of
// the database to all routes that use it, so that one of them probes for all, and that of a dead letter topic to the
// routes that write to that very topic.
func NewGates(cfg downstream.GateConfig, shared ...*downstream.Gate) *Gates {
	s := &Gates{cfg: cfg, watchers: map[int]func(){}}
	s.list.Store(new([]*downstream.Gate))
	for _, g := range shared {
		s.add(g)
	}
	for _, name := range []string{fault.Database, fault.DeadLetterTopic} {
		s.Get(name)
	}
	return s
}

// Get gives the gate of a dependency. The first call makes it; it stays, so names should be few.
func (s *Gates) Get(dependency string) *downstream.Gate {
	if g := s.find(dependency); g != nil {
		return g
	}
	s.mu.Lock()
	g := s.find(dependency)
	if g == nil {
		cfg := s.cfg
		cfg.Name = dependency
		g = downstream.NewGate(cfg)
		s.append(g)
	}
	s.mu.Unlock()
	return g
}

func (s *Gates) find(dependency string) *downstream.Gate {
	for _, g := range *s.list.Load() {
		if g.Name() == dependency {
			return g
		}
	}
	return nil
}

// calls makes d's gate that of the route's calls, unless there is another one with its name. Before the first message.
func (s *Gates) calls(d *downstream.Dependency) {
	g := d.Gate()
	if s.find(g.Name()) == nil {
		s.add(g)
	}
	if s.find(g.Name()) == g {
		s.called = g
		s.doubts.dep, s.doubts.most = d, mostDoubts(d.Config())
	}
}

func (s *Gates) add(g *downstream.Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(g)
}

// append: callers hold mu.
func (s *Gates) append(g *downstream.Gate) {
	list := append(slices.Clone(*s.list.Load()), g)
	s.list.Store(&list)
	if !s.closed {
		s.unwatch = append(s.unwatch, g.Watch(s.changed))
	}
}

// Close takes it off its gates: its watchers hear of nothing more, and everything else goes on. It may be called more than
// once, and on nil.
func (s *Gates) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	stops := s.unwatch
	s.unwatch, s.closed = nil, true
	s.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// Shut says that the scheduler should begin nothing of the route: a gate but the dead letter topic's is shut, 1,000 of its
// records wait for that one, or calls fail while nobody is answered.
func (s *Gates) Shut() bool {
	for _, g := range *s.list.Load() {
		if g.Name() != fault.DeadLetterTopic && g.Shut() {
			return true
		}
	}
	return s.doubts.shut() || s.letters.Load() >= mostLetters
}

// mostLetters is how many records of a route may wait for its dead letter topic before nothing more of the route is begun.
// Only who has a letter to write needs the topic, so a few stop nobody else; but where nearly everything dies, each record
// that is begun is one more that waits in memory.
const mostLetters = 1000

// waitForLetter counts a record that waits for the dead letter topic because of why, until over is called.
func (s *Gates) waitForLetter(why error) (over func()) {
	s.unsent.Store(&why)
	if s.letters.Add(1) == mostLetters {
		s.full.Store(time.Now().UnixNano())
		s.changed()
	}
	return func() {
		if s.letters.Add(-1) == mostLetters-1 {
			s.changed()
		}
	}
}

// Watch calls f whenever Shut may have changed; it must be quick and may call Shut.
func (s *Gates) Watch(f func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextID
	s.nextID++
	s.watchers[id] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, id)
	}
}

// Down tells which dependencies are down and since when: for readiness and alerts, never for liveness. A restart would
// not bring them back, and would forget what is known of them. The dead letter topic is among them while a record of the
// route waits for it.
func (s *Gates) Down() map[string]time.Time {
	down := map[string]time.Time{}
	for _, g := range *s.list.Load() {
		if g.Name() == fault.DeadLetterTopic && s.letters.Load() == 0 {
			continue // another route's letters wait for it
		}
		if since, shut := g.Since(); shut {
			down[g.Name()] = since
		}
	}
	if s.letters.Load() >= mostLetters && down[fault.DeadLetterTopic].IsZero() { // letters that are too large shut no gate
		down[fault.DeadLetterTopic] = time.Unix(0, s.full.Load())
	}
	if since, shut := s.doubts.since(); shut && down[s.called.Name()].IsZero() {
		down[s.called.Name()] = since
	}
	return down
}

// why is why a dependency of Down is down, nil where nobody has said.
func (s *Gates) why(dependency string) error {
	if g := s.find(dependency); g != nil {
		if why := g.Why(); why != nil {
			return why
		}
	}
	switch unsent := s.unsent.Load(); {
	case dependency == fault.DeadLetterTopic && unsent != nil:
		return *unsent // that shuts no gate
	case s.called != nil && dependency == s.called.Name():
		return s.doubts.because()
	}
	return nil
}

func (s *Gates) changed() {
	s.mu.Lock()
	fs := make([]func(), 0, len(s.watchers))
	for _, f := range s.watchers {
		fs = append(fs, f)
	}
	s.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// passes are what one run of records needs: a pass of each gate of the route but the dead letter topic's, and that of
// the calls only where calling says so.
type passes []downstream.Pass

// needs is what a run of records asks of the gate of the calls.
type needs uint8

const (
	noCall    needs = iota
	aCall           // its first one
	callAgain       // one that failed by the dependency's fault
)

func (n needs) try(s *Gates, g *downstream.Gate) (downstream.Pass, bool) {
	if g == s.called && n == callAgain {
		return g.TryEnterAgain()
	}
	return g.TryEnter()
}

// wait is for the gate that try found in the way.
func (n needs) wait(ctx context.Context, soft <-chan struct{}, s *Gates, g *downstream.Gate) (downstream.Pass, bool) {
	if g == s.called && n == callAgain {
		return g.EnterAgain(ctx, soft)
	}
	return g.Enter(ctx, soft)
}

// try takes the passes without waiting, or says which gate is in the way. held is a pass that the caller has already;
// it is released with the others if one is missing, because a probe that waits for something else would keep its gate
// shut, and two that wait for each other's gate would wait for ever.
func (s *Gates) try(held downstream.Pass, calls needs) (passes, *downstream.Gate) {
	list := *s.list.Load()
	ps := make(passes, 0, len(list))
	for _, g := range list {
		switch {
		case g == held.Gate():
			ps = append(ps, held)
			continue
		case g.Name() == fault.DeadLetterTopic, g == s.called && calls == noCall:
			continue
		}
		p, ok := calls.try(s, g)
		if !ok {
			ps.release()
			held.Release()
			return nil, g
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// of gives the pass of one gate, the zero Pass if there is none.
func (ps passes) of(g *downstream.Gate) downstream.Pass {
	for _, p := range ps {
		if g != nil && p.Gate() == g {
			return p
		}
	}
	return downstream.Pass{}
}

func (ps passes) release() {
	for _, p := range ps {
		p.Release()
	}
}
