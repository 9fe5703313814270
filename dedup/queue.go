package dedup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headrace/headrace/fault"
)

// moveTexts are moveSavepoint, a text each.
var moveTexts = [...]string{"release savepoint " + savepoint, "savepoint " + savepoint}

// errNoQuery: pgx.Batch has its list exported.
var errNoQuery = fault.Permanent(errors.New("a nil among what was queued"))

// errAgain is what an attempt came to whose transaction did not stand, for no fault of its record.
var errAgain = errors.New("its transaction was rolled back: it runs again")

// workQueued lets the handlers of the group's fresh records queue, in order, and sends what they queued. Each record's
// statements are executed at most twice: once, and again for those behind which another one failed.
//
//	handler, handler, … ─► encode ─► one trip with COMMIT ─► settle
//	                                   │fails at a record: back to the savepoint; those before it, the savepoint,
//	                                   └─► those behind it, COMMIT: one more trip a failure
func (g *group) workQueued() verdict {
	for e := g.up(); e != nil; e = g.up() {
		if v := g.queue(e); v != kept {
			return v
		}
	}
	if g.gone.Load() {
		return ended
	}
	g.w.line = g.line // to be cleared and used again
	if v := g.stage(); v != kept {
		return v
	}
	return g.send()
}

// queue runs e's handler. It has no connection, so there is nothing to undo.
func (g *group) queue(e *entry) verdict {
	start := time.Now()
	a := newQueueing(e.c.ctx, start.Add(g.rt.cfg.AttemptTimeout))
	e.since, e.attempt = start, a
	e.r.BeginAt(start)
	g.w.begin(g, a, e)
	err := g.callQueue(a, e)
	if !g.w.end(a) {
		return abandoned
	}
	e.r.End()
	expired := errors.Is(a.Err(), errAttempt)
	a.end(context.Canceled)
	e.took, e.cause = time.Since(start), err
	_, skip := fault.AsSkip(err)
	switch {
	case e.c.ctx.Err() != nil:
		return ended
	case err == nil && !g.w.collect(e):
		e.cause = errNoQuery
		g.charge(e, leftOut)
	case err == nil:
		g.line = append(g.line, e)
	case skip:
		e.mode = skipping
		g.charge(e, skipped)
	case expired:
		g.charge(e, cutOff)
	default:
		g.charge(e, leftOut)
	}
	return kept
}

// collect copies what e's handler has queued, and is false if that is not all there. The batch is the handler's, which may
// keep it: what it does with it after its return must not get between the check of a text and its sending.
func (w *writer) collect(e *entry) bool {
	n := len(w.queries)
	e.deferred = nil
	for _, q := range e.attempt.batch.QueuedQueries {
		if q == nil {
			return false
		}
		if d, ok := deferredOf(q.SQL, q.Arguments); ok {
			e.deferred = append(e.deferred, d)
			continue
		}
		w.queries = append(w.queries, *q)
	}
	e.queries = w.queries[n:len(w.queries):len(w.queries)]
	return true
}

func (g *group) callQueue(a *attempt, e *entry) (err error) {
	ctx := context.Context(a)
	if around := g.rt.cfg.Around; around != nil {
		derived, finished := around(a, e.r)
		ctx = derived
		a.finished = append(a.finished, finished)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fault.Recovered(p)
		}
	}()
	return fault.Usable(e.c.work.(Queue)(ctx, a.batch, e.r))
}

// send sends the line until it goes through or nothing of it is left.
func (g *group) send() verdict {
	again, on, ahead := false, false, 0
	for len(g.line) > 0 {
		t := g.newTrip(ahead)
		t.again, t.on = again, on
		if v := g.travel(t); v != kept {
			return v
		}
		if t.at == len(t.line) { // without COMMIT: that comes now, if these are all
			t.reached(true)
			g.line = g.line[t.at:]
			g.line, again, on, ahead = g.cutLine(0), false, true, 0
			continue
		}
		t.reached(false)
		g.arrived(t)
		before := slices.Clone(g.line[:t.at])
		if v := g.settleTrip(t, g.line[t.at]); v == cutOff {
			return kept
		} else if v != kept {
			return v
		}
		g.line = g.standing(g.line)
		again, on, ahead = true, false, common(before, g.line)
		g.line = g.cutLine(ahead)
	}
	if again && !g.exec(toSavepoint) {
		return g.blame(nil)
	}
	return kept
}

// newTrip is for the line, or as much of it as may well get through: those that are likely to fail have trips of their own.
func (g *group) newTrip(ahead int) *trip {
	t := &trip{g: g, ahead: ahead}
	n := firmOf(g.line) - ahead
	if n > 0 {
		n, t.every = g.rt.reach.of(n)
	} else {
		t.frail = true
		n = g.rt.reach.dares(len(g.line) - ahead)
	}
	t.line = g.line[:ahead+n]
	t.split = len(t.line) < len(g.line) || g.mustSplit()
	return t
}

// reached learns how far the next trip should go.
func (t *trip) reached(passed bool) {
	switch reach := &t.g.rt.reach; {
	case t.frail && passed:
		reach.dared(len(t.line) - t.ahead)
	case t.frail:
		reach.dared(0)
	case passed:
		reach.passed(t.at)
	default:
		reach.failed(t.at)
	}
}

// settleTrip deals with e, at which t failed: it is to be sent again, or has its verdict.
func (g *group) settleTrip(t *trip, e *entry) verdict {
	if d, ok := g.inDoubt(t); ok {
		if resend, v := g.restage(d); v != kept || resend {
			return v
		}
		if e.mode != waiting { // it cannot even be encoded now
			return kept
		}
	}
	return g.followTrip(t, e)
}

// common counts those of before that still stand, at the head of line.
func common(before, line []*entry) (n int) {
	for _, e := range before {
		if n < len(line) && line[n] == e {
			n++
		}
	}
	return n
}

// mustSplit says that COMMIT must wait for the answers: somebody looks at them first; the mark of an offset store would
// have the partition's other groups wait for all of the trip; or it is to be seen whether a record that lost its
// connection alone loses it by what it does, or in COMMIT.
func (g *group) mustSplit() bool {
	if g.split || g.rt.offsets != nil {
		return true
	}
	e := g.alone()
	return e != nil && e.watched
}

// travel runs t and sorts out what is nobody's failure. kept goes on, with the failure of one record or without any.
func (g *group) travel(t *trip) verdict {
	for _, e := range t.line {
		e.mode = done
	}
	if !t.split {
		n := len(g.w.pipe.statements)
		tail, err := g.stageTail()
		if err != nil {
			g.worked = time.Since(g.ran)
			g.concluded("", err)
			return sealed
		}
		t.tail = tail
		t.run()
		g.w.pipe.cut(n)
	} else {
		t.run()
	}
	switch {
	case t.taken:
		return abandoned
	case t.sealed:
		t.reached(true)
		g.passed(t.line)
		g.worked = time.Since(g.ran)
		g.concluded(t.tag, t.ending)
		return sealed
	case t.err == nil:
		g.passed(t.line)
		return kept
	}
	for _, e := range t.line {
		e.mode = waiting
	}
	return g.interrupted(t)
}

// arrived takes note of those who stand behind the savepoint.
func (g *group) arrived(t *trip) {
	if n := t.stands(t.at); n > 0 {
		g.passed(t.line[:n])
		g.line, t.at = g.line[n:], t.at-n
		g.mark = len(g.done)
	} else if t.on {
		g.mark = len(g.done)
	}
}

// passed is for those whose statements went through.
func (g *group) passed(es []*entry) {
	for _, e := range es {
		e.mode = done
		g.rt.in.attempted(g.rt, e, "")
	}
	g.done = append(g.done, es...)
}

// followTrip gives e, at which a trip failed, its verdict.
func (g *group) followTrip(t *trip, e *entry) verdict {
	e.cause = t.err
	if isCode(t.err, codeProtocol) {
		// Too few arguments or too many, where they are not asked for: no connection's failure.
		e.cause = fault.Permanent(t.err)
	}
	_, skip := fault.AsSkip(t.err)
	switch {
	case isConflict(t.err) && !t.called:
		return g.collide(e)
	case skip && t.called:
		e.mode = skipping
		g.charge(e, skipped)
	case isCode(t.err, codeCancelled), errors.Is(t.a.Err(), errAttempt):
		g.charge(e, cutOff)
	default:
		g.charge(e, undone)
	}
	if g.conn.Conn().IsClosed() {
		return lost
	}
	return kept
}

// cutLine leaves what is behind those ahead to the next group when this one has lasted long enough and has something to
// commit.
func (g *group) cutLine(ahead int) []*entry {
	if time.Since(g.ran) <= g.rt.in.cfg.MaxBatchTime || ahead+len(g.done) == 0 {
		return g.line
	}
	return g.line[:ahead]
}

// tellLost tells of a trip that has no answer: with COMMIT in it nobody knows what became of it.
func (g *group) tellLost(t *trip) {
	if t.split {
		g.tell("rolled_back")
	} else {
		g.tell("unknown")
	}
}

// interrupted is for what ends a trip and is not one record's failure.
func (g *group) interrupted(t *trip) verdict {
	expired := errors.Is(t.a.Err(), errAttempt)
	switch {
	case g.gone.Load():
		return ended
	case expired && g.alone() == nil:
		// Which of them is slow is seen when each is alone.
		g.separate()
		g.late = true
		g.tellLost(t)
		return lost
	case expired:
		return kept // it was alone: its own time is over
	case g.conn.Conn().IsClosed():
		g.tellLost(t)
		return g.blame(g.alone())
	case t.ours:
		return g.blame(nil)
	}
	return kept
}
