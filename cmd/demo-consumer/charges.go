package main

import "github.com/headrace/headrace/record"

// checkCharge wants one charge of an effected order, the one that its posting names.
func (l *ledger) checkCharge(o order, p posting) {
	charges := l.charges[o.ID]
	if len(charges) == 0 {
		l.problem("no charge", "order %s is effected and was not charged", o.ID)
		return
	}
	c := charges[0] // were there two, checkCharges says so
	if c.Account != o.Account || c.Amount != o.Amount || c.ID != p.charge {
		l.problem("charge", "order %s was charged %d of account %d (%s); should be %d of %d, and its posting says %s",
			o.ID, c.Amount, c.Account, c.ID, o.Amount, o.Account, p.charge)
	}
}

// checkCharges wants no order charged twice, and none that is to have no charge.
func (l *ledger) checkCharges() {
	for id, charges := range l.charges {
		l.report.Charges += len(charges)
		if len(charges) > 1 {
			l.report.DoubleCharges++
			l.problem("double charge", "order %s was charged %d times", id, len(charges))
		}
		e, known := l.ends[id]
		switch {
		case !known:
			l.problem("stray charge", "order %s was charged, and is in no record", id)
		case e.outcome != record.Effected && !chargedInVain(e.kind):
			l.problem("false charge", "order %s (%s) is %s and was charged", id, e.kind, e.outcome)
		}
	}
}
