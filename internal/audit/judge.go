package audit

// The states of an inbox row, as migration 00001 has them.
const (
	rowEffected = 0
	rowSkipped  = 1
	rowDead     = 2
	rowMoved    = 3
)

// facts are all that is known of a record, for one route.
type facts struct {
	// mine is the row under the record's id, place the one under its place; nil for none.
	mine, place *row
	// coordinates is the record's place as the inbox stores it, value its value's hash.
	coordinates, value int64
	// parked says that it has a row in parked_records, inHand that somebody works on its key.
	parked, inHand bool
	letters        int
	// lettersGone says that its letter may have been deleted by retention.
	lettersGone bool
	// committed says that the group's offset is behind it, done that the offset store's is.
	committed, done bool
	// old says that the inbox need not remember it.
	old bool
}

// own is the record's own row: its id's, if it stands there for this record, else its place's.
func (f *facts) own() *row {
	if f.mine != nil && f.mine.is(f.coordinates) {
		return f.mine
	}
	return f.place
}

// verdict is an outcome, and for Wrong how many there are and what is wrong.
type verdict struct {
	outcome  Outcome
	outcomes int
	what     string
}

func none(what string) verdict { return verdict{Wrong, 0, what} }

func two(what string) verdict { return verdict{Wrong, 2, what} }

func is(o Outcome) verdict { return verdict{outcome: o} }

// judge is the whole of the rule, for a route with the inbox.
func judge(f *facts) verdict {
	own := f.own()
	if own == nil {
		return f.withoutRow()
	}
	if own == f.mine && own.state != rowDead && f.place != nil && f.place != own && f.place.state == rowDead {
		return two("its row says " + stateNames[own.state] + ", and the row of its place that it is dead")
	}
	switch own.state {
	case rowDead:
		return f.dead(own)
	case rowEffected:
		return f.settled(own, Effected)
	case rowSkipped:
		return f.settled(own, Skipped)
	}
	return f.settled(own, Duplicate)
}

var stateNames = map[int16]string{rowEffected: "effected", rowSkipped: "skipped", rowDead: "dead", rowMoved: "moved"}

func (f *facts) settled(own *row, o Outcome) verdict {
	switch {
	case f.parked && !f.inHand:
		return two("it is " + string(o) + ", and parked")
	case f.letters > 0 && own.original == nil && own.state != rowMoved:
		return two("it is " + string(o) + ", and has a dead letter that was not replayed")
	}
	return is(o)
}

func (f *facts) dead(own *row) verdict {
	switch {
	case f.letters > 0 && f.parked && !f.inHand:
		return two("it is dead, with its letter, and parked")
	case f.letters > 0:
		return is(Dead)
	case f.parked: // its letter is written when its turn comes
		return is(Parked)
	case !f.committed:
		return is(Pending)
	case f.lettersGone:
		return is(Dead)
	}
	return none("its row says that it is dead, and there is no letter")
}

func (f *facts) withoutRow() verdict {
	switch {
	case f.parked && f.letters > 0:
		return two("it is parked, and has a dead letter without a dead row")
	case f.parked:
		return is(Parked)
	case f.letters > 0 && f.old:
		return is(Dead)
	case f.letters > 0:
		return none("it has a dead letter, and no dead row")
	case !f.committed:
		return is(Pending)
	case f.mine != nil && f.mine.value != f.value:
		return none("it has the id of another record with another value, and is not dead for it")
	case f.mine != nil:
		return is(Duplicate)
	case f.old:
		return is(Forgotten)
	}
	return none("it has no row, is not parked and has no letter")
}

// judgeByOffset is the rule for a route with the offset store: the inbox has rows of what died alone, and the rest is below
// the store's offset or is not.
func judgeByOffset(f *facts) verdict {
	if f.place != nil {
		return judge(f)
	}
	switch {
	case f.letters > 0 && f.old:
		return is(Dead)
	case f.letters > 0:
		return none("it has a dead letter, and no dead row")
	case f.done || f.committed:
		return is(Effected)
	}
	return is(Pending)
}
