package downstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// FallbackConfig says what a read gets when its dependency fails. The zero value has the last known value only.
type FallbackConfig[R any] struct {
	// Operation is what is read, for metrics and reports: a fixed name, no key. Required.
	Operation string
	// MaxEntries is how many values are remembered; the one that was used longest ago goes first. Defaults to 1000.
	MaxEntries int
	// MaxAge is how old a value may be that stands for a fresh one. Defaults to 5m.
	MaxAge time.Duration
	// Partial gives what can be had of key without the dependency, if no value of it is known; false if nothing. It must
	// not call the dependency. Defaults to none.
	Partial func(ctx context.Context, key string) (R, bool)
	// Default gives what stands for a value of key of which nothing is known; false if nothing may. Defaults to none.
	Default func(key string) (R, bool)
}

// Fallback reads from a dependency, and gives a substitute while it fails: the last known value, else a part, else a
// default. It is for reads alone, and never for what money is decided by: there a route forbids it (CallRoute.NoFallback,
// [WithoutFallback]). It is safe for concurrent use and needs no closing.
//
// What degrades is the dependency's own failure, its open breaker and its full bulkhead included. An answer such as 404 is
// one, and a caller that leaves gets nothing.
type Fallback[R any] struct {
	d     *Dependency
	cfg   FallbackConfig[R]
	known *recent[R]
	poor  atomic.Bool // the last read was degraded
}

// Read is what a read came to.
type Read[R any] struct {
	// Value is fresh, or a substitute.
	Value R
	// Degraded says that Value is a substitute, and which; nil if it is fresh.
	Degraded *Degraded
}

// Degraded is what is wrong with a value.
type Degraded struct {
	// Source is where it comes from: one of record.DegradedSources.
	Source string
	// Reason is the failure that kept the fresh one away.
	Reason error
	// Age is how old a last known value is, 0 for the others.
	Age time.Duration
}

// NewFallback makes one for reads of d. The error names the field that is missing or negative.
func NewFallback[R any](d *Dependency, cfg FallbackConfig[R]) (*Fallback[R], error) {
	cfg.MaxEntries = cmp.Or(cfg.MaxEntries, 1000)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, 5*time.Minute)
	switch {
	case d == nil:
		return nil, errors.New("downstream: a Fallback needs a Dependency: make one with New")
	case cfg.Operation == "":
		return nil, fmt.Errorf("downstream %q: FallbackConfig.Operation is empty: name what is read, for metrics", d.cfg.Name)
	case cfg.MaxEntries < 0:
		return nil, fmt.Errorf("downstream %q: FallbackConfig.MaxEntries (%d) must be at least 1", d.cfg.Name, cfg.MaxEntries)
	case cfg.MaxAge < 0:
		return nil, fmt.Errorf("downstream %q: FallbackConfig.MaxAge (%s) must be positive", d.cfg.Name, cfg.MaxAge)
	}
	return &Fallback[R]{d: d, cfg: cfg, known: newRecent[R](cfg.MaxEntries)}, nil
}

// Get reads the value of key with read, by [Run]: outside of a route behind breaker and bulkhead, and more than once. When that fails by the dependency's fault it gives a substitute and says so in the result, in a metric, and,
// once until a read succeeds again, in a report. The error is that of read if there is no substitute, or none is allowed.
//
// In a route the call that was answered with a substitute counts as failed at the breaker, although its record goes on.
func (f *Fallback[R]) Get(ctx context.Context, key string, read func(ctx context.Context) (R, error)) (Read[R], error) {
	var meaning fault.Fault
	fresh, err := Run(ctx, f.d, Operation[R]{
		Name: f.cfg.Operation, Idempotent: true,
		Do: func(ctx context.Context, _ Try) (R, error) {
			v, err := read(ctx)
			meaning, _ = f.d.judge(ctx, err) // while its own context is at hand
			return v, err
		},
	})
	if err == nil {
		f.known.put(key, fresh)
		f.poor.Store(false)
		return Read[R]{Value: fresh}, nil
	}
	if meaning == (fault.Fault{}) { // it was not begun
		meaning, _ = f.d.judge(ctx, err)
	}
	if !f.may(ctx, meaning) {
		return Read[R]{}, err
	}
	value, degraded := f.substitute(ctx, key)
	if degraded == nil {
		return Read[R]{}, err
	}
	degraded.Reason = err
	if p := permitOf(ctx); p != nil && p.Dependency == f.d {
		p.degraded.CompareAndSwap(nil, &degradedBy{meaning, err})
	}
	f.tell(ctx, *degraded, reasonOf(meaning))
	return Read[R]{value, degraded}, nil
}

// may says whether a failure is one that a substitute stands for. Within a Do of the same dependency the substitute would
// pass for an answer, and the breaker would never hear of an outage: put that Do inside.
func (f *Fallback[R]) may(ctx context.Context, meaning fault.Fault) bool {
	if forbidden(ctx) || ctx.Err() != nil {
		return false
	}
	if by, ok := ctx.Value(countedKey{}).(*Dependency); ok && by == f.d {
		return false
	}
	refused := meaning.RefusedBy()
	return errors.Is(refused, fault.ErrBreakerOpen) || errors.Is(refused, fault.ErrBulkheadFull) ||
		meaning.Evidence(f.d.cfg.Name) == fault.SaysDown
}

func (f *Fallback[R]) substitute(ctx context.Context, key string) (value R, _ *Degraded) {
	if v, age, ok := f.known.get(key); ok && age <= f.cfg.MaxAge {
		return v, &Degraded{Source: record.DegradedLastKnown, Age: age}
	}
	if f.cfg.Partial != nil {
		if v, ok := f.cfg.Partial(ctx, key); ok {
			return v, &Degraded{Source: record.DegradedPartial}
		}
	}
	if f.cfg.Default != nil {
		if v, ok := f.cfg.Default(key); ok {
			return v, &Degraded{Source: record.DegradedDefault}
		}
	}
	return value, nil
}

// reasonOf is for the hooks.
func reasonOf(f fault.Fault) string {
	switch by := f.RefusedBy(); {
	case errors.Is(by, fault.ErrBreakerOpen):
		return record.DegradedOpen
	case errors.Is(by, fault.ErrBulkheadFull):
		return record.DegradedFull
	}
	return record.DegradedFailed
}

func (f *Fallback[R]) tell(ctx context.Context, g Degraded, reason string) {
	permit, _ := PermitFrom(ctx)
	f.d.tell.degraded(record.DegradedInfo{
		Dependency: f.d.cfg.Name, Operation: f.cfg.Operation, Route: permit.Route, Source: g.Source, Reason: reason, Age: g.Age,
	})
	if f.poor.CompareAndSwap(false, true) {
		f.d.tell.report(record.Report{
			Kind: record.ReportDegraded, Route: permit.Route, Age: g.Age, Err: fmt.Errorf("%s: %w", f.cfg.Operation, g.Reason),
			Hint: fmt.Sprintf("reads of %s are answered with substitutes (%s) until it is back", f.d.cfg.Name, g.Source),
		})
	}
}

type noFallbackKey struct{}

// WithoutFallback forbids substitutes under ctx: a [Fallback] gives the failure of the read.
func WithoutFallback(ctx context.Context) context.Context {
	return context.WithValue(ctx, noFallbackKey{}, true)
}

func forbidden(ctx context.Context) bool {
	p, _ := PermitFrom(ctx)
	return p.NoFallback || ctx.Value(noFallbackKey{}) != nil
}
