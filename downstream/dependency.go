package downstream

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// Config is a dependency's. Name is required; the zero value of everything else is a default.
type Config struct {
	// Name is what holds, metrics and logs call the dependency. Required.
	Name string
	// Breaker says when the circuit breaker opens, and for how long.
	Breaker BreakerConfig
	// MaxConcurrent is how many calls may be in flight in this process. In a route a further one waits for its turn,
	// first come first served; outside of one it is refused at once.
	//
	// Defaults to 64.
	MaxConcurrent int
	// Hooks are told of calls and of the breaker. A consumer adds its own.
	//
	// Defaults to none.
	Hooks *record.Hooks
}

// BreakerConfig is a circuit breaker's. The zero value has the defaults.
type BreakerConfig struct {
	// MinRequests is how many calls must have ended in Window before the breaker may open. Defaults to 20.
	MinRequests int
	// FailureRatio is the part of them, in (0, 1], that must have failed by the dependency's fault. Defaults to 0.5.
	FailureRatio float64
	// Window is what is counted. At least twice the time of a call, or slow failures fall out of it. Defaults to 60s.
	Window time.Duration
	// OpenFor is how long nothing is let through, before one call may probe. Defaults to 30s.
	OpenFor time.Duration
}

// Dependency is one thing that is called, with everything that stands around those calls. Make one for each, and give it
// to every route and client that calls it: what one learns all know. It is safe for concurrent use and needs no closing.
type Dependency struct {
	cfg  Config
	gate *Gate
}

// New makes a dependency.
func New(cfg Config) (*Dependency, error) {
	return &Dependency{cfg: cfg, gate: NewGate(GateConfig{Name: cfg.Name})}, nil
}

// Name is the dependency's.
func (d *Dependency) Name() string { return d.cfg.Name }

// Config is what New was given, with the defaults.
func (d *Dependency) Config() Config { return d.cfg }

// Gate is where the records of routes wait while the breaker is open. It follows the breaker: give it to the scheduler,
// and tell it nothing but who leaves a turn unused.
func (d *Dependency) Gate() *Gate { return d.gate }

// State is the breaker's: record.BreakerClosed, BreakerHalfOpen or BreakerOpen. It asks the clock: an open breaker whose
// time is over is half open.
func (d *Dependency) State() string { return record.BreakerClosed }

// Observe adds hooks beside Config.Hooks; remove takes them off again.
func (d *Dependency) Observe(h *record.Hooks) (remove func()) { return func() {} }

// Acquire waits for one of the MaxConcurrent places, first come first served; false when soft closes or ctx ends first.
func (d *Dependency) Acquire(ctx context.Context, soft <-chan struct{}) (release func(), ok bool) {
	return func() {}, true
}

// Begin asks the breaker for one call of at most limit, after which it counts as failed, whatever becomes of it. The
// error is a *fault.RefusedError.
func (d *Dependency) Begin(limit time.Duration) (*Call, error) { return &Call{}, nil }

// Call is one call that the breaker let through.
type Call struct{}

// Probe says that it is the one that a half-open breaker lets through.
func (c *Call) Probe() bool { return false }

// End tells what became of the call; the first time counts. failed is false for a success, and f is what a failure
// means. What End says is whether the record that called is to be charged for it.
func (c *Call) End(failed bool, f fault.Fault) Charge { return Charged }

// Charge is whose a failure is.
type Charge uint8

// The charges.
const (
	// Charged: it is the record's, or the dependency has answered somebody since the call began: an attempt is spent.
	Charged Charge = iota
	// Free: the dependency's fault, as far as anybody can tell: try again after a back-off, at no charge.
	Free
	// Outage: it was the probe, or the breaker has opened since the call began: hold, at no charge.
	Outage
)

// Permit says on whose behalf calls are made under a context: the layer that calls for a record has taken the breaker's
// leave and a place already, so that Do and Transport make one try and count nothing again.
type Permit struct {
	Dependency *Dependency
	// Scope is of the idempotency keys: consumer group and route.
	Group, Route string
	// ID is the record's identity as the inbox stores it: the same on every attempt, redelivery and replay.
	ID uuid.UUID
}

type permitKey struct{}

// WithPermit is for the layer that calls on behalf of a record.
func WithPermit(ctx context.Context, p Permit) context.Context {
	return context.WithValue(ctx, permitKey{}, p)
}
