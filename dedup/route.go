package dedup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// Route is the inbox of one route: a queue of records and the writers that put them into transactions. It is safe for
// concurrent use and closed by Inbox.Close.
type Route struct {
	in       *Inbox
	cfg      RouteConfig
	consumer int32
	sql      openSQL
	graves   graveyard
	suspects *suspects
	caution  caution
	reach    reach
	offsets  *offsetStore // of an offset store, nil otherwise
	replays  *Route       // of an offset store: the inbox of its replays
	parent   *Route       // of such an inbox: the offset store's route
	died     deadPlaces   // of an inbox

	mu      sync.Mutex
	changed sync.Cond // the queue may have something for a writer
	queue   []*call
	pace    pace
	frail   frail
	flight  map[uuid.UUID]flying // by ids
	closed  bool
	stopped error // a handler ended a transaction: nothing more runs

	// hot is until when the route's lock is taken exclusively, and heat how long the last conflict made that.
	hot    time.Time
	heat   time.Duration
	inHand int // groups that have not ended
}

// heat bounds: how long a conflict keeps other groups of the route out, doubling while conflicts go on.
const (
	minHeat = 500 * time.Millisecond
	maxHeat = 8 * time.Second
)

// Run gives each of rs, records of one message in their order, its effects exactly once. It returns when each is settled
// (effected, duplicate or skipped, right after COMMIT) or has an Err:
//
//   - what its handler returned or panicked with (*fault.PanicError), its own attempt;
//   - record.ErrNotRun: one it must stay behind failed, or the delivery is ending; no attempt;
//   - ErrDead (a *DeadError): produce its dead letter again; ErrConflict, ErrCrashLoop: it is dead for that reason;
//   - fault.Busy: another member has it in hand; fault.Unavailable: the database is away, or the route was stopped;
//     fault.Transient: its deadline passed, or it met another transaction three times (a lock not given: fault.Busy);
//   - the cause of ctx, when that ended.
//
// ctx is the delivery's: when it ends, what is not committed is rolled back. When the records' Soft closes, nothing more
// of rs begins, and every wait ends; but not of records that have the Reply of a call: they have begun with it, and who
// gets them next would call again. Run may be called from any number of goroutines: their records share transactions,
// and work may be called from several at once, for records of which none must stay behind another. All Runs of a route
// must be given the same work.
//
// It never charges an attempt; it adds the time of the attempts to each record's Spent.
func (rt *Route) Run(ctx context.Context, rs []*record.Record, work Work) {
	if len(rs) == 0 {
		return
	}
	if rs[0].Replay && rt.replays != nil {
		rt.replays.Run(ctx, rs, work)
		return
	}
	rt.recall(rs...)
	c := newCall(ctx, rs, work)
	rt.enqueue(c)
	soft := rs[0].Soft()
	if c.called {
		soft = nil
	}
	for {
		select {
		case <-c.done:
			return
		case <-soft:
			soft = nil
			rt.end(c, record.ErrNotRun, false)
		case <-ctx.Done():
			rt.end(c, context.Cause(ctx), true)
			<-c.done
			return
		}
	}
}

func (rt *Route) enqueue(c *call) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	switch {
	case rt.stopped != nil:
		c.decideQueued(rt.stopped)
	case rt.closed:
		c.decideQueued(record.ErrNotRun)
	case c.entries[0].r.Ending() && !c.called:
		c.decideQueued(record.ErrNotRun)
	default:
		rt.queue = append(rt.queue, c)
		rt.changed.Signal()
	}
}

// end lets nothing more of c begin. A group that waits for something goes on without c; one that runs its handlers is
// left alone by a soft end, and by a hard end rolled back.
func (rt *Route) end(c *call, why error, hard bool) {
	rt.mu.Lock()
	c.over = why
	c.decideQueued(why)
	rt.queue = slices.DeleteFunc(rt.queue, func(x *call) bool { return x == c })
	groups := slices.Clone(c.groups)
	rt.mu.Unlock()
	for _, g := range groups {
		g.withdraw(c, hard)
	}
}

// take gives the next group for w, nil when the route is closed.
func (rt *Route) take(w *writer) *group {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for !rt.closed {
		if rt.mayForm() {
			if g := rt.form(w); g != nil {
				rt.inHand++
				return g
			}
		}
		rt.changed.Wait()
	}
	return nil
}

// mayForm says whether there may be another group now. While the route's lock is exclusive one at a time is all that gets
// on, and who waits for it in Postgres does harm: the snapshot of that statement keeps the versions of a hot row, each
// update of which then walks past all of them. Measured: three waiting writers made it 2.5 times slower than one alone.
func (rt *Route) mayForm() bool { return rt.inHand == 0 || !time.Now().Before(rt.hot) }

// form makes a group of what is queued, in order. What of a call does not fit, or must wait for another group, stays in
// line for any writer, behind the other calls: so a big message of slow records holds up a small one for one group at
// most. When all must wait, the end of that group looks again.
func (rt *Route) form(w *writer) *group {
	g := newGroup(rt, w)
	for _, c := range rt.queue {
		if !g.take(c) {
			break
		}
	}
	if len(g.entries) == 0 {
		return nil
	}
	rt.queue = slices.DeleteFunc(rt.queue, g.took)
	for _, c := range g.calls {
		if c.waiting > 0 {
			rt.queue = append(rt.queue, c)
		}
	}
	if len(rt.queue) > 0 {
		rt.changed.Signal()
	}
	return g
}

// finish tells the records of a group that has ended what became of them, and puts the others back in line.
//
// Outcomes first and without the lock: settling calls the records' owners.
func (rt *Route) finish(g *group) {
	g.answerTwins()
	for _, e := range g.entries {
		rt.withhold(e)
		e.finishAttempt()
		switch {
		case e.outcome != record.Unsettled:
			e.r.Err = nil
			e.r.Settle(e.outcome)
		case e.err != nil && e.img != nil && !errors.Is(e.err, record.ErrNotRun):
			e.img.remember(e.r, tried)
		}
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.inHand--
	rt.frail.learn(g)
	for _, e := range g.entries {
		delete(rt.flight, rt.key(e.r))
		e.r.Spent += e.charge()
		g.release(e)
	}
	if g.late {
		rt.pace.timedOut(len(g.entries))
	}
	if g.worked > 0 {
		through := len(g.entries) - len(g.todo) + g.next
		if g.calls[0].work.kind() == Executed {
			rt.pace.observe(len(g.entries), through, g.worked)
		} else {
			rt.pace.observeWhole(len(g.entries), through, g.worked)
		}
	}
	rt.leaveBehind(g)
	rt.backInLine(g)
	if rt.stopped != nil {
		rt.drain(rt.stopped)
	}
	rt.changed.Broadcast()
}

// finishAttempt tells what the attempt of a queued handler came to.
func (e *entry) finishAttempt() {
	if e.attempt == nil {
		return
	}
	a, err := e.attempt, error(nil)
	e.attempt = nil
	if e.outcome == record.Unsettled {
		err = or(e.err, errAgain)
	}
	if e.outcome == record.Skipped {
		err = e.cause
	}
	a.finish(err)
}

// charge is the time that counts for e: its last run, if that decided it. A run that was undone for another's sake is
// not of its budget.
func (e *entry) charge() time.Duration {
	took := e.took
	e.took = 0
	if e.outcome == record.Unsettled && (e.err == nil || e.mode != failing) {
		return 0
	}
	return took
}

// release tells e's call. Whatever e's error is, also that the database is away: those of its domain that are in line
// stay behind it.
func (g *group) release(e *entry) {
	switch {
	case e.outcome != record.Unsettled:
		e.c.decide(e, nil)
	case e.err != nil:
		g.failed.add(e)
		e.c.decide(e, e.err)
	default:
		e.c.move(e, queued)
		e.mode, e.answer, e.first = waiting, Fresh, nil
	}
}

// backInLine puts what g leaves in front of the queue, unless more of its call is in the queue: that has its place.
func (rt *Route) backInLine(g *group) {
	for _, c := range slices.Backward(g.calls) {
		c.groups = slices.DeleteFunc(c.groups, func(x *group) bool { return x == g })
		if c.over != nil {
			c.decideQueued(c.over)
		} else if c.waiting > 0 && !slices.Contains(rt.queue, c) {
			rt.queue = slices.Insert(rt.queue, 0, c)
		}
	}
}

// leaveBehind keeps what is still in line behind a record of its domain that failed: in the calls of the group, and,
// though the scheduler should never let it come to that, in any other.
func (rt *Route) leaveBehind(g *group) {
	if len(g.failed) == 0 {
		return
	}
	for _, list := range [...][]*call{g.calls, rt.queue} {
		for _, c := range list {
			for i := range c.entries {
				if e := &c.entries[i]; e.state == queued && g.behindFailed(e) {
					c.decide(e, record.ErrNotRun)
				}
			}
		}
	}
	rt.queue = slices.DeleteFunc(rt.queue, func(c *call) bool { return c.waiting == 0 })
}

// drain ends everything that is in line. The lock is held.
func (rt *Route) drain(why error) {
	for _, c := range rt.queue {
		c.decideQueued(why)
	}
	rt.queue = nil
}

func (rt *Route) close() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.closed = true
	rt.drain(record.ErrNotRun)
	rt.changed.Broadcast()
}

// stop ends the route for this process: its handler cannot be trusted with the transaction.
func (rt *Route) stop(err error) {
	err = fault.Unavailable(err, "route "+rt.cfg.Name)
	rt.mu.Lock()
	rt.stopped = err
	rt.mu.Unlock()
	if twin := or(rt.replays, rt.parent); twin != nil {
		twin.mu.Lock()
		defer twin.mu.Unlock()
		twin.stopped = err
		twin.drain(err)
	}
}

// conflict makes the route exclusive for a while: across processes, one group at a time.
func (rt *Route) conflict() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	now := time.Now()
	if rt.heat > 0 && now.Before(rt.hot.Add(rt.heat)) {
		rt.heat = min(2*rt.heat, maxHeat)
	} else {
		rt.heat = minHeat
	}
	rt.hot = now.Add(rt.heat)
}

func (rt *Route) exclusive() bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return time.Now().Before(rt.hot)
}
