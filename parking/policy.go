package parking

import (
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/backoff"
)

// OnDead says what becomes of the records that wait behind a head that is dead.
type OnDead uint8

const (
	// Release lets them run: the next one is the head.
	Release OnDead = iota
	// Hold keeps them, and what joins them, until an operator lets them run ([Store.Retry]).
	Hold
)

// Policy is how a route parks. The zero value is usable.
type Policy struct {
	// Base is how long a record waits after its first failure. Each further round waits twice as long as the one before.
	//
	// Defaults to 1 min.
	Base time.Duration
	// Cap is the longest such wait.
	//
	// Defaults to 1 h.
	Cap time.Duration
	// Rounds is how often a record is tried out of here before it is dead. A delay that the handler asked for
	// (fault.Park) is a round like any other.
	//
	// Defaults to 10, at most 1,000.
	Rounds int
	// OnDead says what becomes of those behind a record that is dead after all.
	//
	// Defaults to Release.
	OnDead OnDead
	// MaxRecords is how many records the route may have parked. From there on nothing more is taken (ErrFull), so that
	// whoever wants to park waits and Kafka keeps the backlog. What is parked goes on meanwhile. A few processes that park
	// at the same moment may exceed it by what each has in hand.
	//
	// Defaults to 1,000,000.
	MaxRecords int64
	// MaxAge is how long a head may be parked before nothing more is taken. A record is not tried for longer either: the
	// delay of a round is cut to what is left, whoever asked for it, and a record that fails then is dead. What waits for
	// something that is down is not tried meanwhile. The rounds of one record must fit in.
	//
	// Defaults to 7 days.
	MaxAge time.Duration
	// Lease is how long a process that is cut off keeps the keys that it works on from the others. It is renewed each
	// third of it.
	//
	// Defaults to 30 s, at least 1 s.
	Lease time.Duration
}

const (
	maxRounds = 1000
	minLease  = time.Second
)

// WithDefaults is p with its zero fields set.
func (p Policy) WithDefaults() Policy {
	p.Base = or(p.Base, time.Minute)
	p.Cap = or(p.Cap, max(p.Base, time.Hour))
	p.Rounds = or(p.Rounds, 10)
	p.MaxRecords = or(p.MaxRecords, 1_000_000)
	p.MaxAge = or(p.MaxAge, 7*24*time.Hour)
	p.Lease = or(p.Lease, 30*time.Second)
	return p
}

// Validate says everything that is wrong with p, after defaults, in one error.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	var errs []error
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Base < 0, "Base %s is negative", p.Base)
	check(p.Cap < p.Base, "Cap %s is less than Base %s", p.Cap, p.Base)
	check(p.Rounds < 0 || p.Rounds > maxRounds, "Rounds %d is not between 1 and %d", p.Rounds, maxRounds)
	check(p.OnDead > Hold, "OnDead %d is neither Release nor Hold", p.OnDead)
	check(p.MaxRecords < 0, "MaxRecords %d is negative", p.MaxRecords)
	check(p.Lease < minLease, "Lease %s is less than %s: a pause of the process would lose it", p.Lease, minLease)
	if len(errs) == 0 {
		check(p.Longest() > p.MaxAge, "%d rounds wait %s in all (Base %s doubled up to Cap %s), which exceeds MaxAge %s; "+
			"a record that runs its rounds would stop the partition: lower Rounds or Cap, or raise MaxAge",
			p.Rounds, p.Longest(), p.Base, p.Cap, p.MaxAge)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("parking policy: %w", err)
	}
	return nil
}

// Delay is how long a record waits after the given round failed; 1 is the first.
func (p Policy) Delay(round int) time.Duration {
	p = p.WithDefaults()
	return backoff.Exponential(p.Base, p.Cap, max(round, 1)-1)
}

// Longest is how long a record waits in all, if each of its rounds fails.
func (p Policy) Longest() (sum time.Duration) {
	p = p.WithDefaults()
	for round := 1; round <= p.Rounds; round++ {
		sum += p.Delay(round)
	}
	return sum
}

// delay is what a handler asked for, 0 for the policy's own.
func (p Policy) delay(asked time.Duration, round int) time.Duration {
	if asked <= 0 {
		asked = p.Delay(round)
	}
	return min(asked, p.MaxAge)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
