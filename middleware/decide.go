package middleware

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
)

// Action is what happens to a record that did not succeed.
type Action uint8

// The actions.
const (
	// Again: another attempt after a back-off.
	Again Action = iota
	// Hold: wait until a dependency is back, free of charge, then try again.
	Hold
	// Park: put it into Postgres to be tried at its due time, out of its partition's way.
	Park
	// Follow: put it into Postgres behind a record of its key that is there already.
	Follow
	// Dead: write the verdict and the dead letter.
	Dead
	// GiveBack: the delivery is over; another will decide.
	GiveBack
)

var actionNames = [...]string{"again", "hold", "park", "follow", "dead", "give back"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Names of what a hold waits for, beside fault.Database, fault.DeadLetterTopic and the names that handlers give.
const (
	// RetryAfter is the route's pause for a Retry-After beyond a record's budget.
	RetryAfter = "retry-after"
	// BusyElsewhere is another delivery that owns what the record needs. There is no gate for it: it holds nobody else.
	BusyElsewhere = "busy"
	// Postponed is the time that a handler asked for with fault.Park, on a route that does not park. No gate either.
	Postponed = "postponed"
	// NoRoom is parking at one of its limits: only what wants to park waits for it, and what is parked goes on.
	NoRoom = "parking"
	// NoBudget is a budget that has less left than an attempt takes, on a route that does not park. No gate either: after a
	// back-off it begins anew.
	NoBudget = "budget"
	// Flood is the guard that refused a dead letter.
	Flood = "flood-guard"
	// RouteStopped is a new version of the handler, after one that ended the inbox's transaction by itself.
	RouteStopped = "route"
)

// State is all that a decision depends on.
type State struct {
	// Fault is what the classifier found in the failure.
	Fault fault.Fault
	// Cause is the reason that a permanent failure has by its nature: undecodable, panic, id_conflict, crash_loop. ""
	// is an ordinary one.
	Cause dlq.Reason
	// NeverRan says that the failure came before the handler, so that there was no attempt to charge.
	NeverRan bool
	// NotRun says that the record did not fail at all: it stands behind another, or its group was cut.
	NotRun bool
	// Ending says that the claim is ending: soft is closed.
	Ending bool
	// Attempts are the charged failures before this one.
	Attempts int
	// Spent is the part of the budget that is gone.
	Spent time.Duration
	// Normal is what an attempt takes as a rule, 0 for whatever is left.
	Normal time.Duration
	// Free counts the failures of the record in a row, before this one, that cost it nothing.
	Free int
	// ParkFor is the delay that the handler asked for with fault.Park; nil if it did not.
	ParkFor *time.Duration
	// CanPark says that the route parks, and the record has a round left; OutOfRounds that it parks, and it has none.
	CanPark, OutOfRounds bool
	// Blocked says that the record did not run, because a record of its key is parked.
	Blocked bool
	// Repeatable says that what the route does may be repeated when its outcome is unknown.
	Repeatable bool
	// Called is the dependency whose call failed, "" if the failure is no call's; Charge is whose failure that is.
	Called string
	Charge downstream.Charge
	// Random, in [0, 1), is the jitter.
	Random float64
}

// Decision is what Decide says.
type Decision struct {
	// Action is what to do.
	Action Action
	// Wait is the back-off (Again), the earliest end (Hold), or the delay (Park, 0 for parking's own schedule).
	Wait time.Duration
	// Charged says that the failure spends one of the record's attempts, and its time and Wait the record's budget.
	Charged bool
	// Dependency names what a Hold waits for.
	Dependency string
	// Reason is why it is Dead.
	Reason dlq.Reason
}

// busyRounds is how often a Busy record is tried again soon before it is held, and idleRounds how often one that was
// not run is at once: that a group was cut again and again is no reason to spin.
const (
	busyRounds = 5
	idleRounds = 3
	busyCap    = time.Second
)

// Decide is the one place that knows what happens to a record that did not succeed. It has no state and no clock.
func (p Policy) Decide(s State) Decision {
	s.Fault.RetryAfter = max(s.Fault.RetryAfter, 0)
	switch {
	// The claim ends: the record goes to its next owner as it came. Whatever failed now may have failed because
	// something is shutting down, so nothing that began before the end is turned into a dead letter after it.
	case s.Ending:
		return Decision{Action: GiveBack}
	case s.NotRun:
		return p.notRun(s)
	case s.Blocked:
		return Decision{Action: Follow}
	case s.Charge != downstream.Charged && p.mayRepeat(s):
		return p.uncorroborated(s)
	case s.ParkFor != nil && s.CanPark:
		return Decision{Action: Park, Wait: max(*s.ParkFor, 0), Charged: true}
	case s.ParkFor != nil && s.OutOfRounds:
		return Decision{Action: Dead, Reason: dlq.Exhausted, Charged: true}
	case s.ParkFor != nil:
		return p.postponed(s, max(*s.ParkFor, 0))
	}
	return p.byClass(s)
}

func (p Policy) byClass(s State) Decision {
	switch s.Fault.Class {
	case fault.ClassPermanent:
		return Decision{Action: Dead, Reason: or(s.Cause, dlq.Permanent), Charged: !s.NeverRan}
	case fault.ClassTransient, fault.ClassAmbiguous:
		return p.charged(s)
	case fault.ClassBusy:
		return p.busy(s)
	case fault.ClassUnavailable:
		return Decision{
			Action: Hold, Dependency: or(s.Fault.Dependency, fault.Database), Wait: min(s.Fault.RetryAfter, p.MaxHold),
		}
	case fault.ClassCancelled:
		return Decision{Action: GiveBack}
	}
	return Decision{Action: Dead, Reason: dlq.Permanent, Charged: true}
}

// charged is a failure that spends an attempt. [downstream.Plan] says whether there is another one, and never sleeps into
// a dead budget: if nothing would be left of it after the back-off, the record is exhausted now, with the error that it has.
func (p Policy) charged(s State) Decision {
	left, floor := p.Budget-s.Spent, s.Fault.RetryAfter
	plan := downstream.Plan(p.signal(s))
	switch {
	case plan.Reason == downstream.UnknownOutcome:
		return Decision{Action: Dead, Reason: dlq.UnknownOutcome, Charged: true}
	case floor > 0 && left > 0 && (floor >= left || plan.Reason == downstream.DeadlineExhausted):
		return p.later(s, floor)
	case plan.Again:
		return Decision{Action: Again, Wait: plan.Wait, Charged: true}
	case plan.Reason == downstream.DeadlineExhausted && s.Normal > 0:
		return p.short(s)
	case s.CanPark:
		return Decision{Action: Park, Charged: true}
	case s.Fault.Class == fault.ClassAmbiguous:
		return Decision{Action: Dead, Reason: dlq.UnknownOutcome, Charged: true}
	}
	return Decision{Action: Dead, Reason: dlq.Exhausted, Charged: true}
}

// short is for a record that has attempts left, and less budget than an attempt takes: begun, that could only be its last.
func (p Policy) short(s State) Decision {
	if s.CanPark {
		return Decision{Action: Park, Charged: true}
	}
	wait := backoff.Exponential(p.Base, p.Cap, s.Attempts)
	return Decision{
		Action: Hold, Dependency: NoBudget, Charged: true,
		Wait: min(min(s.Fault.RetryAfter, p.MaxHold)+wait/2+scale(wait/2, s.Random), p.MaxHold),
	}
}

// signal has nothing of breaker and tokens: those of a route have refused its call, if they do.
func (p Policy) signal(s State) downstream.Signal {
	return downstream.Signal{
		Retry: downstream.RetryConfig{Attempts: p.Attempts, Base: p.Base, Cap: p.Cap},
		Fault: s.Fault, Repeatable: s.Repeatable, Attempt: s.Attempts + 1,
		Left: p.Budget - s.Spent - s.Normal, Random: s.Random,
	}
}

// mayRepeat says that the failure of a call is one after which it is made again.
func (p Policy) mayRepeat(s State) bool {
	switch s.Fault.Class {
	case fault.ClassTransient, fault.ClassAmbiguous:
		return downstream.Plan(p.signal(s)).Reason != downstream.UnknownOutcome
	case fault.ClassPermanent, fault.ClassBusy, fault.ClassUnavailable, fault.ClassCancelled:
	}
	return false
}

// uncorroborated is a call that failed while nothing shows that its dependency answers anybody: an outage, as far as
// anybody can tell, and healthy records must not die of one, however few they are and long before a breaker has seen
// enough to open. So it costs nothing. A record that fails alone, always, stays in the way of its key, with a report.
func (p Policy) uncorroborated(s State) Decision {
	floor := s.Fault.RetryAfter
	switch {
	case floor > 0 && floor >= p.Budget-s.Spent:
		return p.later(s, floor)
	case s.Charge == downstream.Outage:
		return Decision{Action: Hold, Dependency: s.Called, Wait: floor}
	}
	wait := backoff.Exponential(p.Base, p.Cap, s.Free)
	return Decision{Action: Again, Wait: floor + wait/2 + scale(wait/2, s.Random)}
}

// later is for a Retry-After beyond the budget. Somebody said when to come back, so the record is not at fault: it waits
// for free and is never dead for it. A year is cut to MaxHold, and then asked again.
func (p Policy) later(s State, after time.Duration) Decision {
	if after > p.MaxHold && s.CanPark {
		return Decision{Action: Park, Wait: after}
	}
	return Decision{Action: Hold, Dependency: RetryAfter, Wait: min(after, p.MaxHold)}
}

// postponed is a fault.Park on a route that does not park: the record waits here, and stays in the way of its key only.
func (p Policy) postponed(s State, delay time.Duration) Decision {
	s.Fault = fault.Fault{Class: fault.ClassTransient, RetryAfter: delay}
	d := p.charged(s)
	if d.Dependency == RetryAfter {
		d.Dependency = Postponed
	}
	return d
}

func (p Policy) busy(s State) Decision {
	floor := min(s.Fault.RetryAfter, p.MaxHold)
	if s.Free < busyRounds {
		return Decision{Action: Again, Wait: floor + scale(backoff.Exponential(p.Base, min(p.Cap, busyCap), s.Free), s.Random)}
	}
	wait := backoff.Exponential(p.Base, p.Cap, s.Free-busyRounds+1)
	return Decision{Action: Hold, Dependency: BusyElsewhere, Wait: max(floor, wait/2+scale(wait/2, s.Random))}
}

func (p Policy) notRun(s State) Decision {
	if s.Free < idleRounds {
		return Decision{Action: Again}
	}
	return Decision{Action: Again, Wait: scale(backoff.Exponential(p.Base, min(p.Cap, busyCap), s.Free-idleRounds), s.Random)}
}

func scale(d time.Duration, part float64) time.Duration { return time.Duration(part * float64(d)) }
