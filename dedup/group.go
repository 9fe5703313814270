package dedup

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/record"
)

// chunk is how many records stand between two savepoints. Measured, records/s at groups of 500 and 0 / 1 / 50 % of
// failures: no savepoint 13.4k / 3.9k / 0.4k, one every 16 15.2k / 12.2k / 5.2k, one a record 9.2k / 10.1k / 5.4k.
const chunk = 16

// group is the records that share one transaction, and that transaction. It belongs to one writer; only what is said to
// be shared is touched by others.
type group struct {
	rt      *Route
	w       *writer
	calls   []*call
	entries []*entry // in the order in which they run
	limit   int      // how many there may be
	solo    bool     // the only one must be alone

	// ctx is of the waits before the first handler; interrupt ends them.
	ctx       context.Context
	interrupt context.CancelFunc

	turn   turn
	marked *record.Record // the only one, while its mark stands
	conn   *pgxpool.Conn
	beside *pgxpool.Conn // another one, while a record is watched that may kill its connection
	tx     pgx.Tx
	began  time.Time
	ran    time.Time     // when the first handler began
	worked time.Duration // how long they took, all of todo or those before the cut; 0: it ended otherwise
	late   bool          // they were worked on as one, and their time was up
	todo   []*entry      // those whose handlers run
	idle   []*entry      // fresh, but behind one that waits for another transaction, or is parked: their rows are taken back
	firm   int           // how many of todo come before those that are likely to fail
	next   int           // the first of todo that has not run
	done   []*entry      // those that ran well, in order
	mark   int           // the savepoint stands after this many of done
	since  int           // handlers that ran since the savepoint

	line  []*entry // those whose queued statements are to be sent
	split bool     // somebody looks at results before COMMIT
	told  bool     // the hook knows how it ended
	anew  bool     // statements are described anew, or were: what the connection remembered of them is in doubt

	way way // in which its rows are written, or a more careful one

	unsaved bool // the savepoint was missing: a handler ended the transaction
	slow    bool // COMMIT was not answered in time

	leases  []lease  // of an offset store: the partitions of its records, as they were when it began
	xid     string   // of an offset store: the transaction's
	marking *marking // what goes before COMMIT, until that is answered

	failed fronts // a record failed: those behind it are not run
	held   fronts // a record must wait for another transaction: those behind it wait with it

	running atomic.Bool // shared: handlers run, waits are over
	gone    atomic.Bool // shared: a delivery of this group ended hard
}

func newGroup(rt *Route, w *writer) *group {
	g := &group{
		rt: rt, w: w, limit: rt.pace.limit,
		calls: w.calls[:0], entries: w.entries[:0], todo: w.todo[:0], done: w.done[:0], line: w.line[:0],
	}
	g.ctx, g.interrupt = context.WithCancel(context.Background())
	return g
}

// take adds what c has in line and may run beside the rest. It reports false when the group is full. The route's lock is
// held.
func (g *group) take(c *call) bool {
	if c.ctx.Err() != nil || c.alone() { // its Run call is about to say so; the end of that group looks again
		return true
	}
	if len(g.calls) > 0 && c.work.kind() != g.calls[0].work.kind() {
		return true // kinds do not mix
	}
	before, inHand := len(g.entries), c.inHand()
	for i := range c.entries {
		e := &c.entries[i]
		if e.state != queued || inHand.before(e) || g.behindHeld(e) {
			continue
		}
		if !e.suspect && g.rt.suspects.has(e.r) {
			e.suspect, e.solo = true, true
		}
		if g.full() || e.solo && len(g.entries)+len(c.groups) > 0 {
			break
		}
		g.add(e)
	}
	if len(g.entries) > before {
		c.groups = append(c.groups, g)
		g.calls = append(g.calls, c)
	}
	return !g.full()
}

// took reports whether g, the newest group, has records of c.
func (g *group) took(c *call) bool {
	return len(c.groups) > 0 && c.groups[len(c.groups)-1] == g
}

func (g *group) full() bool { return len(g.entries) >= g.limit || g.solo }

// add takes e, unless a group of this process (or this one: the same id may come twice in a message) has its id in
// hand. Then e waits for that outcome, and so do those behind it; or comes along, if the outcome can only be the same.
func (g *group) add(e *entry) {
	key := g.rt.key(e.r)
	first, flies := g.rt.flight[key]
	switch {
	case !flies:
		g.rt.flight[key] = flying{g, e}
	case g.twins(first, e):
		e.first = first.e
	default:
		g.hold(e)
		return
	}
	g.solo, e.frail = e.solo, g.rt.frail.has(e)
	e.c.move(e, taken)
	g.entries = append(g.entries, e)
}

func (g *group) hold(e *entry)              { g.held.add(e) }
func (g *group) behindHeld(e *entry) bool   { return g.held.before(e) }
func (g *group) behindFailed(e *entry) bool { return g.failed.before(e) }

// fronts are the domains in which a record stands still, each with the offset of the first that does: what comes after
// it stays behind it, and what comes before it does not. A failure may be known before its predecessors have run (a
// conflict, by the inbox's answer) or while they run again (an undo). Were they put behind it they would never run: the
// whole chain comes again, the same one fails, the same ones are put behind it.
type fronts map[domain]int64

func (f *fronts) add(e *entry) {
	if e.r.Domain() == "" {
		return
	}
	if *f == nil {
		*f = fronts{}
	}
	d := e.domain()
	if at, ok := (*f)[d]; !ok || e.r.Offset < at {
		(*f)[d] = e.r.Offset
	}
}

// before says whether a record of e's domain that stands still comes before e.
func (f fronts) before(e *entry) bool {
	if len(f) == 0 || e.r.Domain() == "" {
		return false
	}
	at, ok := f[e.domain()]
	return ok && at < e.r.Offset
}

// fail gives e its verdict, which stands whatever becomes of the transaction.
func (g *group) fail(e *entry, err error) {
	e.mode, e.err = failing, err
	g.failed.add(e)
}

// failAll gives one verdict to all that have none.
func (g *group) failAll(err error) {
	for _, e := range g.entries {
		if e.outcome == record.Unsettled && e.err == nil {
			e.err = err
		}
	}
}

// alone is the group's only record, nil if there are several.
func (g *group) alone() *entry {
	if len(g.entries) == 1 {
		return g.entries[0]
	}
	return nil
}

// separate gives each record a transaction of its own from now on: something is wrong with one of them and nothing says
// with which.
func (g *group) separate() {
	for _, e := range g.entries {
		e.solo = true
	}
}

// withdraw is called from c's goroutine when its delivery ends.
func (g *group) withdraw(c *call, hard bool) {
	if hard {
		g.gone.Store(true)
		g.w.endAttempt(g, c)
	}
	if !g.running.Load() {
		g.interrupt()
	}
}

func (g *group) takeTurn() bool {
	weight := int64(1)
	if e := g.alone(); e != nil && e.suspect {
		weight = everybody
	}
	return g.turn.take(g.ctx, g.rt.in.turns, weight)
}

func (g *group) leaveTurn() {
	if g.marked != nil {
		g.rt.suspects.unmark(g.marked)
		g.marked = nil
	}
	g.turn.leave()
}

// incriminate marks a suspect, and is false if it must not run.
func (g *group) incriminate() bool {
	e := g.alone()
	if e == nil || !e.suspect {
		return true
	}
	marked, err := g.rt.suspects.mark(context.Background(), e.r)
	if err != nil {
		g.fail(e, err)
		return false
	}
	if marked {
		g.marked = e.r
	}
	return true
}

// run is the whole life of a group, from BEGIN to the answer to COMMIT. It reports false when the group was taken away
// while a handler was stuck: then nothing of it may be touched any more.
func (g *group) run() bool {
	defer g.interrupt()
	defer g.endMark(unknown) // as a rule it has ended
	if !g.takeTurn() {
		return true // a delivery of this group is ending: on without it
	}
	defer g.leaveTurn()
	if !g.open() || !g.incriminate() {
		g.disconnect()
		return true
	}
	if e := g.alone(); e != nil && e.watched {
		g.watchBeside()
		defer g.leaveBeside()
	}
	g.running.Store(true)
	g.ran = time.Now()
	switch g.work() {
	case abandoned:
		return false
	case kept:
		g.worked = time.Since(g.ran)
		g.commit()
	case sealed:
	case ended, lost, brokeOff, escaped, collided, renewed:
		g.tell("rolled_back")
	case skipped, leftOut, undone, cutOff, doubted:
		panic("dedup: a record's verdict cannot end its group")
	}
	g.disconnect()
	return true
}
