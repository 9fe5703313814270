package dedup

import (
	"errors"

	"github.com/headrace/headrace/record"
)

// A record runs behind the writes of others in its transaction, and what it comes to may lie in these: a key that one of
// them has taken, a row that says that nothing is left to do. Should they not stand in the end, neither does its verdict:
//
//	A inserts key 7 -> B inserts it too, and fails for good -> A's COMMIT is refused, or A runs again and fails
//	-> B is dead for what never was
//
// So it comes again, free of charge and alone: that verdict is its own. That its time was up, or that it broke the
// connection, lies in no write. The hook of attempts has been told of one too many.

// behindOthers says whether a handler that executed SQL for set has seen writes of others.
func (g *group) behindOthers(set ...*entry) bool {
	return set[0].touched && len(g.done)+len(set) > 1
}

// reopen takes the verdicts back that were reached behind writes which do not stand, and of those behind them.
func (g *group) reopen(stands func(*entry) bool) {
	if !g.shaken(stands) {
		return
	}
	g.failed = nil // who still fails is added again
	for _, e := range g.todo {
		switch {
		case e.outcome != record.Unsettled:
		case e.behind && (e.mode == failing || e.mode == skipping):
			e.mode, e.err, e.solo = waiting, nil, true
		case e.mode == failing && errors.Is(e.err, record.ErrNotRun):
			e.mode, e.err = waiting, nil
		}
	}
}

// shaken says whether there is such a verdict: of one judged behind others, while a record's writes stood and do not now.
func (g *group) shaken(stands func(*entry) bool) bool {
	behind, gone := false, false
	for _, e := range g.todo {
		behind = behind || e.behind
		gone = gone || e.stood && !stands(e)
	}
	return behind && gone
}

// willStand and isDurable say it before COMMIT, and once the group has ended.
func willStand(e *entry) bool { return e.mode == done }
func isDurable(e *entry) bool { return e.outcome != record.Unsettled }
