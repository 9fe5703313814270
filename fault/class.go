package fault

import "fmt"

// Class is what an error means for the record whose attempt ended with it.
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
