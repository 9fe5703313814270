package dedup

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// everybody is the weight of a turn that nobody shares; 1 is that of one that others share.
const everybody = 1 << 30

// turn is the right to run what may take the process down: a group's handlers, or one call out. Turns are shared by all
// routes of an inbox, but for a suspect's: while its mark stands nothing else runs, so that the mark a dead process
// leaves names the one record that ran.
//
//	two partitions suspect ─► A's killer and B's innocent record run, each marked ─► the process dies: both marks stay,
//	and after three such deaths B's record would be convicted for A's
//
// They are given in the order in which they were asked for, so a suspect is not starved, and waits for those that run
// already: each is bounded by its timeout, HardGrace and CommitTimeout. A handler or call that ignores these loses its
// turn, for it may never return. It may still kill, so as long as one is stuck a death proves nothing (suspects.mark).
//
// A turn is taken before the connection: whoever waits for one has nothing that those before it could need, no
// connection, no row, no lock.
type turn struct {
	of     *semaphore.Weighted
	weight int64
	over   atomic.Bool
}

// tryTake takes the turn if nobody has to be waited for.
func (t *turn) tryTake(of *semaphore.Weighted, weight int64) bool {
	t.of, t.weight = of, weight
	return of.TryAcquire(weight)
}

// take waits for the turn; false when ctx ends first.
func (t *turn) take(ctx context.Context, of *semaphore.Weighted, weight int64) bool {
	t.of, t.weight = of, weight
	return of.Acquire(ctx, weight) == nil
}

// leave ends the turn. Only the first call does.
func (t *turn) leave() {
	if !t.over.Swap(true) {
		t.of.Release(t.weight)
	}
}
