package downstream

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// GateConfig says how a [Gate] looks for its dependency. The zero value has the defaults.
type GateConfig struct {
	// Name is the dependency's, as fault.Unavailable and the hooks have it.
	Name string
	// Base is the wait before the first probe. Each wait is jittered between its half and its whole, and each failed
	// probe doubles it. Defaults to 100ms.
	Base time.Duration
	// Cap is the longest wait between two probes. Defaults to 5s.
	Cap time.Duration
	// ProbeTimeout ends a probe that neither succeeds nor fails, so that one that hangs does not shut the gate for
	// ever. Longer than an attempt's deadline and its grace. Defaults to 15s.
	ProbeTimeout time.Duration
}

func (c GateConfig) withDefaults() GateConfig {
	c.Base = cmp.Or(c.Base, 100*time.Millisecond)
	c.Cap = max(cmp.Or(c.Cap, 5*time.Second), c.Base)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 15*time.Second)
	return c
}

// Gate stands before one dependency, a database or a dead letter topic. Open, it costs an atomic load. Shut, because
// somebody found the dependency down, it lets exactly one through at a time, when the back-off is over: the probe.
//
//	        Failed                     due, one at a time
//	open ───────────► shut ◄────────────────────────────┐
//	 ▲                 │ │ probe ──► Failed: longer wait, the prober goes to the tail
//	 │ nobody waits    │ └─────────► Release: the next waiter has the turn at once
//	 │                 ▼ OK, from anybody
//	 └──────────────ramp  1, 2, 4, … of those that wait; Failed: shut
//
// Who waits is let through in order of arrival, but for the probe once one has failed, and one that leaves passes its turn
// on. Without the ramp all that waited would arrive at once at a dependency that just came back, and take it down again.
//
// A Gate is safe for concurrent use, may be shared by the routes of a process, and needs no closing: it has a timer
// while it is shut and no goroutine.
type Gate struct {
	cfg  GateConfig
	word atomic.Uint64 // epoch<<1 | not open: what the fast path reads

	mu    sync.Mutex
	shut  bool // down; else open, or in the ramp if anybody waits
	epoch uint64
	round uint64
	fails int // probes that failed in a row
	due   time.Time
	since time.Time
	why   error // it is not open: what the one that shut it, or the last probe, had failed with
	out   int   // turns of this epoch that are not done
	// window is how many turns the ramp lets out at once. Each OK adds one, which doubles it a round.
	window   int
	breaker  breakerNews
	queue    []*turn
	again    []*turn // of those that have failed already
	timer    *time.Timer
	watchers map[int]func()
	nextID   int
	told     bool // what the watchers know of Shut
}

// NewGate makes an open gate.
func NewGate(cfg GateConfig) *Gate {
	return &Gate{cfg: cfg.withDefaults(), watchers: map[int]func(){}}
}

// Name is the dependency's.
func (g *Gate) Name() string { return g.cfg.Name }

// TryEnter gives a pass if it need not wait for it.
func (g *Gate) TryEnter() (Pass, bool) {
	if w := g.word.Load(); w&1 == 0 {
		return Pass{g: g, epoch: w >> 1}, true
	}
	g.mu.Lock()
	if !g.lineClosed() {
		p := Pass{g: g, epoch: g.epoch}
		g.mu.Unlock()
		return p, true
	}
	if !g.probeDue() {
		g.mu.Unlock()
		return Pass{}, false
	}
	t := &turn{ready: make(chan struct{})} // the line's offer, whoever else waits
	g.grant(t)
	g.settleAndUnlock()
	return Pass{g: g, t: t, epoch: t.epoch}, true
}

// Enter waits for a pass. It reports false when soft closes or ctx ends first.
func (g *Gate) Enter(ctx context.Context, soft <-chan struct{}) (Pass, bool) {
	return g.enter(ctx, soft, &g.queue, g.lineClosed)
}

func (g *Gate) enter(ctx context.Context, soft <-chan struct{}, queue *[]*turn, closed func() bool) (Pass, bool) {
	if w := g.word.Load(); w&1 == 0 {
		return Pass{g: g, epoch: w >> 1}, true
	}
	g.mu.Lock()
	if !closed() {
		p := Pass{g: g, epoch: g.epoch}
		g.mu.Unlock()
		return p, true
	}
	t := g.enqueue(queue)
	g.settleAndUnlock()
	select {
	case <-t.ready:
		return Pass{g: g, t: t, epoch: t.epoch}, true
	case <-soft:
	case <-ctx.Done():
	}
	g.leave(t)
	return Pass{}, false
}

// EnterAgain is Enter for a record that has failed at the dependency: those that have not are let in before it, and once the
// dependency is back they wait for none such. If none of them waits when a probe is due the line has a second to supply
// one. Otherwise the dependency would be judged for ever by the few records that it fails.
func (g *Gate) EnterAgain(ctx context.Context, soft <-chan struct{}) (Pass, bool) {
	return g.enter(ctx, soft, &g.again, g.closed)
}

// TryEnterAgain is TryEnter for such a record. It is no probe: that it may become in EnterAgain.
func (g *Gate) TryEnterAgain() (Pass, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Pass{g: g, epoch: g.epoch}, !g.closed()
}

// Up says that the dependency answered somebody, whoever asked. The gate of a [Dependency] hears that from its breaker
// alone.
func (g *Gate) Up() { Pass{g: g}.OK() }

// Down shuts the gate, until t at least; the zero time is the usual back-off.
func (g *Gate) Down(t time.Time) { g.DownBecause(t, nil) }

// DownBecause is Down by a failure, which Why gives. Its text must be one that may be shown.
func (g *Gate) DownBecause(t time.Time, why error) {
	g.mu.Lock()
	if !g.shut {
		g.close(why)
	}
	if t.After(g.due) {
		g.due = t
	}
	g.settleAndUnlock()
}

// Shut says that the scheduler should begin nothing that needs the dependency. It is false although the gate is not
// open when a probe is due and nobody waits to be it: then the line must supply one, or after a revoke that took all
// waiters away nobody ever would. For a second that is also so if all that wait have failed before, and now and then after failed probes.
func (g *Gate) Shut() bool {
	if g.word.Load()&1 == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isShut()
}

// Since is when the gate was shut, and whether it is: for readiness and alerts.
func (g *Gate) Since() (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since, g.lineClosed()
}

// Why is what the dependency was found down with, last: by the one that shut the gate, or by a probe. nil if nobody said,
// or if the gate is open.
func (g *Gate) Why() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

// Watch calls f whenever Shut may have changed, also when a probe falls due, on the goroutine that changed it. f must
// be quick; it may call Shut.
func (g *Gate) Watch(f func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := g.nextID
	g.nextID++
	g.watchers[id] = f
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.watchers, id)
	}
}

func (g *Gate) enqueue(queue *[]*turn) *turn {
	t := &turn{ready: make(chan struct{})}
	*queue = append(*queue, t)
	return t
}

// leave takes a waiter out. One that got its turn in the same moment passes it on.
func (g *Gate) leave(t *turn) {
	g.mu.Lock()
	for _, queue := range []*[]*turn{&g.queue, &g.again} {
		if i := slices.Index(*queue, t); i >= 0 {
			*queue = slices.Delete(*queue, i, i+1)
		}
	}
	g.finish(t)
	g.settleAndUnlock()
}
