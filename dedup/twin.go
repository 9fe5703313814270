package dedup

import (
	"github.com/headrace/headrace/record"
)

// A producer that was not told of its success sends a record again, so a copy comes right behind as a rule: in the same
// message. Then both are of one group, the inbox is asked about the first one only, and if that is fresh what becomes of it
// answers the copy too: once the first one's row is durable, whoever asked the inbox for the copy would be told duplicate.

// flying is a record that a group of this process has in hand.
type flying struct {
	g *group
	e *entry
}

// twins says whether e, a record with the same id as first, can be in g without running. It must have the same value, and
// stay behind the same records: then nothing behind it runs either should the first one fail.
func (g *group) twins(first flying, e *entry) bool {
	if first.g != g || g.rt.placed() || !ordinary(first.e.r) || !ordinary(e.r) || first.e.domain() != e.domain() {
		return false
	}
	a, b := &first.e.r.Identity, &e.r.Identity
	return a.ValueHash == b.ValueHash && a.Coordinates != b.Coordinates
}

// ordinary: it comes from its topic for the first time.
func ordinary(r *record.Record) bool { return !r.Replay && r.Parked == nil }

// sortTwin has a copy ask for itself in the next group, unless its first is fresh and is to leave a row of its own. A row
// that is known may be the copy's: then its own effect is what it sees, or it is dead and its letter was never written.
func (g *group) sortTwin(e *entry) {
	if e.first.answer != Fresh {
		e.first = nil
		g.hold(e)
	}
}

// answerTwins gives the copies their outcome. One whose first is undecided or failed goes back in line with it.
func (g *group) answerTwins() {
	copies := 0
	for _, e := range g.entries {
		if e.first == nil || e.err != nil {
			continue
		}
		if o := e.first.outcome; o == record.Effected || o == record.Skipped {
			e.outcome = record.Duplicate
			copies++
		}
	}
	if copies > 0 {
		var counts [len(answerNames)]int
		counts[Duplicate] = copies
		g.rt.in.answered(g.rt, counts[:])
	}
}
