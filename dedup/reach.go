package dedup

import "sync/atomic"

// reach is how many records a trip of queued effects is for while records fail in them. One that fails takes the whole
// trip with it: what comes behind was sent for nothing, and what came before runs again from the savepoint. So a trip goes
// about twice as far as the last one came, and has savepoints on its way.
//
//	all pass            everything in one trip, no savepoint: as a rule
//	one fails at n      the next trip is for 2n
//	a trip passes       the next is for twice as many, until that is more than any group
//
// Those that are likely to fail have trips of their own, for one, and for twice as many as passed in the last one. That lasts
// longer than a group: of keys that had one record that can never succeed the others pass, and a group has as many as
// another. Begun with one in each group, they took a handful of trips where one will do.
//
// It is the route's: how many fail is no group's own. Two writers that change it at once do no harm.
type reach struct {
	n     atomic.Int32 // 0: all
	least int32
	every int32 // how many records stand between two savepoints
	most  int32 // MaxBatch

	frail atomic.Int32 // of those that are likely to fail; 0 is one
}

const (
	// leastReach is how many records are worth a trip.
	leastReach = 64
	// saveEvery makes 62 savepoints of the largest group by default: from 65 on the server keeps them on disk.
	saveEvery = 32
)

// of says how many of left are to be sent, and after how many of them the savepoint moves.
func (r *reach) of(left int) (n, every int) {
	if n := int(r.n.Load()); n > 0 {
		return min(n, left), int(r.every)
	}
	return left, 0
}

func (r *reach) failed(at int) { r.n.Store(min(max(r.least, int32(2*at)), r.most)) }

// passed is told of a trip of n that nobody failed in.
func (r *reach) passed(n int) {
	now := r.n.Load()
	switch {
	case now == 0 || int32(n) < now:
	case 2*now >= r.most:
		r.n.CompareAndSwap(now, 0)
	default:
		r.n.CompareAndSwap(now, 2*now)
	}
}

// dares says how many of left, all of them likely to fail, are to be sent.
func (r *reach) dares(left int) int { return min(max(int(r.frail.Load()), 1), left) }

// dared is told of a trip in which n of those passed, 0 if one failed.
func (r *reach) dared(n int) {
	now := r.frail.Load()
	if next := min(2*int32(n), r.most); n == 0 || next > now {
		r.frail.CompareAndSwap(now, next)
	}
}
