package fault

import "fmt"

// Class is what an error means for the record whose attempt ended with it. The zero value is ClassPermanent: what
// nobody knows is never tried again by mistake.
type Class uint8

const (
	// ClassPermanent: it will fail again (4xx, decode, constraint, business rule, and everything unknown). No retry; dead.
	ClassPermanent Class = iota
	// ClassTransient: surely not executed, or undone. Retried; then dead or parked.
	ClassTransient
	// ClassAmbiguous: the outcome is unknown. Retried only where repeating is safe; then dead, reason unknown_outcome.
	ClassAmbiguous
	// ClassBusy: another delivery owns it at this moment. Retried soon, free of charge; then held.
	ClassBusy
	// ClassUnavailable: a dependency is down, not the record. Held until it is back, free of charge.
	ClassUnavailable
	// ClassCancelled: the delivery ended. Not settled, given back.
	ClassCancelled
)

var classNames = [...]string{"permanent", "transient", "ambiguous", "busy", "unavailable", "cancelled"}

// String is the class's name as metrics, dead letters and logs spell it: "permanent", "transient", …
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Charged says whether a failure of this class spends one of the record's attempts.
func (c Class) Charged() bool {
	switch c {
	case ClassPermanent, ClassTransient, ClassAmbiguous:
		return true
	case ClassBusy, ClassUnavailable, ClassCancelled:
		return false
	}
	return true
}

// gravity orders the failures of one errors.Join. A record gets one treatment, so the one is taken that wrongs none of
// the failures:
//
//   - ambiguous first: any other treatment would repeat, or let an operator repeat, what may have been executed.
//   - unavailable before permanent: what looks permanent may follow from the outage (a lookup failed, so the zero value
//     failed the validation), and an outage must never kill a record. Holding costs one more run.
//   - permanent before busy and transient: that branch fails again however often the others are tried.
//   - busy before transient: an attempt is not spent while another delivery may be doing the work.
func (c Class) gravity() int {
	switch c {
	case ClassCancelled:
		return 5
	case ClassAmbiguous:
		return 4
	case ClassUnavailable:
		return 3
	case ClassPermanent:
		return 2
	case ClassBusy:
		return 1
	case ClassTransient:
		return 0
	}
	return 2
}
