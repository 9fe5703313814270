package main

import (
	"github.com/google/uuid"

	"github.com/headrace/headrace/record"
)

// checkCharge wants a charge for each of an effected order's records, and its postings to name them.
func (l *ledger) checkCharge(o order, p posting) {
	charges := l.charges[o.ID]
	if n := l.copies[o.ID]; len(charges) < n { // more of them is for checkCharges to say
		l.problem("no charge", "order %s is effected %d times and was charged %d times", o.ID, n, len(charges))
		return
	}
	known := map[uuid.UUID]bool{}
	for _, c := range charges {
		known[c.ID] = true
		if c.Account != o.Account || c.Amount != o.Amount {
			l.problem("charge", "order %s was charged %d of account %d; should be %d of %d", o.ID, c.Amount, c.Account, o.Amount, o.Account)
		}
	}
	for _, id := range p.charges {
		if !known[id] {
			l.problem("charge", "order %s was not charged, or posted twice, as its posting says: %s", o.ID, id)
		}
		delete(known, id)
	}
}

// checkCharges wants no order charged more often than it has reasons to be, and none that has none.
func (l *ledger) checkCharges() {
	for id, charges := range l.charges {
		l.report.Charges += len(charges)
		e, known := l.ends[id]
		most := l.copies[id] + l.vain[id]
		if e.outcome != record.Effected && chargedInVain(e.kind) {
			most++
			l.report.ChargedInVain++
		}
		switch {
		case !known:
			l.problem("stray charge", "order %s was charged, and is in no record", id)
		case most == 0:
			l.problem("false charge", "order %s (%s) is %s and was charged", id, e.kind, e.outcome)
		case len(charges) > most:
			l.report.DoubleCharges++
			l.problem("double charge", "order %s was charged %d times", id, len(charges))
		case len(charges) > 1:
			l.report.ChargedAnew++
		}
	}
}
