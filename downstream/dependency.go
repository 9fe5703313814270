package downstream

import (
	"context"
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// Dependency is one thing that is called, with everything that stands around those calls. Make one for each, and give it
// to every route and client that calls it: what one learns all know. It is safe for concurrent use and needs no closing.
type Dependency struct {
	cfg     Config
	gate    *Gate
	breaker breaker
	places  bulkhead
	tokens  tokens
	tell    observers

	toldTransaction sync.Once
}

// New makes a dependency. It speaks to nobody. Everything that cannot work comes in one error, each with its value.
func New(cfg Config) (*Dependency, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &Dependency{cfg: cfg, gate: NewGate(GateConfig{Name: cfg.Name})}
	d.gate.breaker.leads = true
	d.places.free = cfg.MaxConcurrent
	d.tokens.left = tokensCap
	if cfg.Hooks != nil {
		d.tell.add(cfg.Hooks)
	}
	d.breaker.init(d)
	return d, nil
}

// Name is the dependency's.
func (d *Dependency) Name() string { return d.cfg.Name }

// Config is what New was given, with the defaults.
func (d *Dependency) Config() Config { return d.cfg }

// Gate is where the records of routes wait while the breaker is open. It follows the breaker: give it to the scheduler,
// and tell it nothing but who leaves a turn unused (Pass.Release).
func (d *Dependency) Gate() *Gate { return d.gate }

// State is the breaker's: record.BreakerClosed, BreakerHalfOpen or BreakerOpen. It asks the clock: an open breaker whose
// time is over is half open.
func (d *Dependency) State() string { return d.breaker.now() }

// Opened is what the hooks were told when the breaker opened, and when that was; false while it is closed. Its Err is the
// last probe's, once one has failed.
func (d *Dependency) Opened() (info record.BreakerInfo, at time.Time, ok bool) {
	d.breaker.mu.Lock()
	defer d.breaker.mu.Unlock()
	b := &d.breaker
	return b.opened, b.since, b.opened.To == record.BreakerOpen
}

// Answers is how often it has answered anybody in this process.
func (d *Dependency) Answers() uint64 {
	d.breaker.mu.Lock()
	defer d.breaker.mu.Unlock()
	return d.breaker.seen.answers
}

// Unanswered is how many calls have failed by its fault since it answered anybody in this process, but for those of
// records that had failed before.
func (d *Dependency) Unanswered() int64 {
	d.breaker.mu.Lock()
	defer d.breaker.mu.Unlock()
	return int64(d.breaker.seen.fresh - d.breaker.freshThen) //nolint:gosec // calls
}

// InUse is how many of the MaxConcurrent places are taken at this moment.
func (d *Dependency) InUse() int {
	d.places.mu.Lock()
	defer d.places.mu.Unlock()
	return d.cfg.MaxConcurrent - d.places.free
}

// Observe adds hooks beside Config.Hooks; remove takes them off again.
func (d *Dependency) Observe(h *record.Hooks) (remove func()) { return d.tell.add(h) }

// Acquire waits for one of the MaxConcurrent places, first come first served; false when soft closes or ctx ends first.
// Waiting is no part of the call: take the place before Begin. release may be called more than once.
func (d *Dependency) Acquire(ctx context.Context, soft <-chan struct{}) (release func(), ok bool) {
	if !d.places.wait(ctx, soft) {
		return nil, false
	}
	return sync.OnceFunc(d.places.leave), true
}

// Begin asks the breaker for one call of at most limit, after which it counts as failed, whatever becomes of it. limit
// is the call's deadline and what it may take to notice it. The error is a *fault.RefusedError.
func (d *Dependency) Begin(limit time.Duration) (*Call, error) { return d.BeginFor("", limit) }

// BeginFor is Begin for a route, which the hooks are told of: by End of the call, and by a refusal here.
func (d *Dependency) BeginFor(route string, limit time.Duration) (*Call, error) {
	return d.BeginAgain(route, limit, Streak{})
}

// BeginAgain is BeginFor for a record whose last call's Streak is after: so that one which fails always, while others are
// answered, is charged for it, and opens the breaker of nobody.
func (d *Dependency) BeginAgain(route string, limit time.Duration, after Streak) (*Call, error) {
	c := &Call{d: d, route: route, after: after}
	if err := c.begin(limit); err != nil {
		return nil, err
	}
	return c, nil
}
