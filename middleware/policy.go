package middleware

import (
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/internal/backoff"
)

// Policy says how often, how long and how patiently a record is tried. The zero value has the defaults.
type Policy struct {
	// Attempts is how many charged failures a record may have in one delivery, the first included. Defaults to 3.
	Attempts int
	// AttemptTimeout is the deadline that the inbox gives each attempt. It stands here because Budget and the gates'
	// probes are measured by it. Defaults to 5s.
	AttemptTimeout time.Duration
	// CallTimeout is the deadline of one call, 0 for a route that does not call. Defaults to Route.Call's.
	CallTimeout time.Duration
	// Base is the back-off before the second attempt: a random part of it, "full jitter", twice as much each time.
	// Defaults to 200ms.
	Base time.Duration
	// Cap is the longest back-off. Defaults to 10s.
	Cap time.Duration
	// Budget is the time that a record may spend on attempts and back-offs together. Holds, waits behind another record
	// and a writer's queue are not in it. Defaults to Attempts × (CallTimeout + AttemptTimeout) + Backoffs(): 15.6s for a
	// route that does not call.
	Budget time.Duration
	// NormalTime is what an attempt takes as a rule, its call included, say its p99. None is begun after a failure for which
	// less of Budget is left: the record is parked if the route parks, else it is held for a back-off, and its budget, not
	// its attempts, begins anew. downstream.Measured takes the p99 of the attempts that succeeded in the last half to one
	// minute, once they are 100, and no more than CallTimeout + AttemptTimeout. Defaults to 0: any time is enough.
	NormalTime time.Duration
	// MaxHold is the longest that one Retry-After beyond the budget is obeyed, and a bound for nothing else: a
	// dependency that is down is waited for as long as it takes. Defaults to 15m.
	MaxHold time.Duration
	// DeadLetterTimeout is the deadline of the inbox's verdict and, again, of the produce. Defaults to 10s.
	DeadLetterTimeout time.Duration
}

// WithDefaults is p with the default in each zero field.
func (p Policy) WithDefaults() Policy {
	p.Attempts = or(p.Attempts, 3)
	p.AttemptTimeout = or(p.AttemptTimeout, 5*time.Second)
	p.Base = or(p.Base, 200*time.Millisecond)
	p.Cap = or(p.Cap, 10*time.Second)
	p.MaxHold = or(p.MaxHold, 15*time.Minute)
	p.DeadLetterTimeout = or(p.DeadLetterTimeout, 10*time.Second)
	p.Budget = or(p.Budget, time.Duration(p.Attempts)*(p.CallTimeout+p.AttemptTimeout)+p.Backoffs())
	return p
}

// Backoffs is the sum of the longest back-offs between the attempts of one record: a term of the plan.
func (p Policy) Backoffs() time.Duration {
	var sum time.Duration
	for n := range p.Attempts - 1 {
		sum += backoff.Exponential(p.Base, p.Cap, n)
	}
	return sum
}

func (p Policy) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Attempts > 0, "Attempts (%d) must be positive", p.Attempts)
	check(p.AttemptTimeout > 0, "AttemptTimeout (%s) must be positive", p.AttemptTimeout)
	check(p.Base > 0, "Base (%s) must be positive", p.Base)
	check(p.Cap >= p.Base, "Cap (%s) must not be below Base (%s)", p.Cap, p.Base)
	check(p.CallTimeout >= 0, "CallTimeout (%s) must not be negative", p.CallTimeout)
	check(p.Budget >= p.CallTimeout+p.AttemptTimeout, "Budget (%s) must hold one attempt (CallTimeout %s + AttemptTimeout %s)",
		p.Budget, p.CallTimeout, p.AttemptTimeout)
	check(p.NormalTime >= 0 || p.NormalTime == downstream.Measured, "NormalTime (%s) must be positive, or downstream.Measured", p.NormalTime)
	check(p.NormalTime <= p.CallTimeout+p.AttemptTimeout, "NormalTime (%s) must not exceed CallTimeout (%s) + AttemptTimeout (%s): no attempt has as much",
		p.NormalTime, p.CallTimeout, p.AttemptTimeout)
	check(p.MaxHold > 0, "MaxHold (%s) must be positive", p.MaxHold)
	check(p.DeadLetterTimeout > 0, "DeadLetterTimeout (%s) must be positive", p.DeadLetterTimeout)
	return errors.Join(errs...)
}

func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
