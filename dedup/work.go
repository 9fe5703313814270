package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// errAttempt is the Err of an attempt whose time is up.
var errAttempt = context.DeadlineExceeded

const (
	toSavepoint   = "rollback to savepoint " + savepoint
	moveSavepoint = "release savepoint " + savepoint + "; savepoint " + savepoint
)

// work does what the group's fresh records are to effect. kept: what is done may be committed. sealed: that has been
// tried. Any other verdict: nothing of the transaction stands.
func (g *group) work() verdict {
	switch g.calls[0].work.kind() {
	case Queued:
		return g.workQueued()
	case Grouped:
		return g.workGrouped()
	case Executed:
	}
	return g.workExecuted()
}

// up is the next whose handler is to run. nil: there is none, a delivery has ended, or the group has lasted long enough
// and the rest comes in the next one.
func (g *group) up() *entry {
	for g.next < len(g.todo) {
		if g.gone.Load() || g.next > 0 && time.Since(g.ran) > g.rt.in.cfg.MaxBatchTime {
			return nil
		}
		e := g.todo[g.next]
		g.next++
		switch {
		case g.behindHeld(e):
		case g.behindFailed(e):
			g.fail(e, record.ErrNotRun)
		default:
			return e
		}
	}
	return nil
}

// workExecuted runs the handlers in order.
func (g *group) workExecuted() verdict {
	for e := g.up(); e != nil; e = g.up() {
		if (g.since >= chunk || g.since > 0 && g.next == g.firm+1) && !g.advance() {
			return g.blame(nil)
		}
		v := g.attempt(e)
		if v = g.follow(e, v); v != kept {
			if v == cutOff {
				return kept
			}
			return v
		}
	}
	if g.gone.Load() {
		return ended
	}
	return kept
}

// advance moves the savepoint behind what is done.
func (g *group) advance() bool {
	if !g.exec(moveSavepoint) {
		return false
	}
	g.mark, g.since = len(g.done), 0
	return true
}

// follow does to the transaction what a record's verdict says. It gives kept to go on, cutOff to commit what is done,
// and otherwise what ended the group.
func (g *group) follow(e *entry, v verdict) verdict {
	switch v {
	case kept:
		e.mode = done
		g.done = append(g.done, e)
		return g.witness(e)
	case skipped:
		e.mode = skipping
		if !e.touched {
			return kept
		}
		return g.undo()
	case leftOut:
		return kept
	case undone:
		return g.undo()
	case doubted:
		e.anew = true
		return g.undo(e)
	case cutOff:
		if u := g.undo(); u != kept {
			return u
		}
		return cutOff
	case collided:
		return g.collide(e)
	case lost:
		return g.blame(e)
	case escaped:
		return g.escape(e)
	case brokeOff, renewed, ended, abandoned, sealed:
		return v
	}
	return v
}

// undo goes back to the savepoint and runs again what had run well since: it was undone with the culprit; and then also.
// Should one of them fail now, it is a culprit too, and the same happens again without it; each turn leaves one out (or
// gives one its second run), so it ends.
func (g *group) undo(also ...*entry) verdict {
	if !g.exec(toSavepoint) {
		return g.blame(nil)
	}
	again := append(slices.Clone(g.done[g.mark:]), also...)
	g.done = g.done[:g.mark]
	for _, e := range again {
		e.mode = waiting
	}
	for _, e := range again {
		if g.behindFailed(e) {
			g.fail(e, record.ErrNotRun)
			continue
		}
		if v := g.follow(e, g.attempt(e)); v != kept {
			return v
		}
	}
	if len(again) > 0 && !g.advance() {
		return g.blame(nil)
	}
	return kept
}

// collide gives way to another transaction: what stands before the savepoint is committed, everything since comes again,
// under the route's exclusive lock. What is in the way of a record that collides alone three times is not ours: it fails.
func (g *group) collide(e *entry) verdict {
	g.rt.conflict()
	e.conflicts++
	if g.alone() == e {
		if e.conflictsAlone++; e.conflictsAlone >= 3 {
			e.conflictsAlone = 0
			g.fail(e, outmatched(e.cause))
		}
		return collided
	}
	e.solo = e.conflicts >= 2
	v := g.keepDone(collided)
	if v == cutOff {
		for _, x := range g.done[g.mark:] {
			x.mode = waiting
		}
		g.done = g.done[:g.mark]
	}
	return v
}

// collideAll gives way where nobody knows which of es is in another transaction's way. What es wrote is not undone yet.
func (g *group) collideAll(es []*entry, cause error) verdict {
	if e := g.alone(); e != nil {
		e.cause = cause
		return g.collide(e)
	}
	g.rt.conflict()
	for _, e := range es {
		e.conflicts++
		e.solo = e.conflicts >= 2
	}
	return g.keepDone(collided)
}

// keepDone leaves the group with what stands behind the savepoint, and without it with v.
func (g *group) keepDone(v verdict) verdict {
	switch {
	case g.mark == 0:
		return v
	case g.exec(toSavepoint):
		return cutOff
	case g.unsaved:
		return g.backstop()
	}
	return v
}

// outmatched is a record that lost alone, three times. A lock that is not given is somebody's maintenance (ALTER TABLE,
// VACUUM FULL) and no fault of the record: it waits, free of charge, however long that takes.
func outmatched(cause error) error {
	if isCode(cause, codeLock) {
		return fault.Busy(cause)
	}
	return fault.Transient(cause)
}

// exec runs one of our own statements. A handler may have left the transaction in any state, so the answer decides.
func (g *group) exec(sql string) bool {
	g.w.impatient(g.conn.Conn().PgConn().Conn(), g.rt.cfg.AttemptTimeout+g.rt.in.cfg.HardGrace)
	defer g.w.patient()
	_, err := g.conn.Exec(context.Background(), sql)
	if isCode(err, codeNoSavepoint) {
		g.unsaved = true
	}
	return err == nil
}

// attempt runs e's handler once and judges what it left.
func (g *group) attempt(e *entry) verdict {
	start := time.Now()
	a := newAttempt(e.c.ctx, start.Add(g.rt.cfg.AttemptTimeout))
	a.root.inner, a.scope.texts, a.scope.anew = g.tx, &g.w.texts, e.anew
	e.since = start
	e.r.BeginAt(start)
	g.w.begin(g, a, e)
	err := g.call(a, e)
	left := a.scope.close() // under the attempt's clock: the server may have gone silent
	if !g.w.end(a) {
		return abandoned
	}
	e.r.End()
	return g.conclude(e, a, err, left)
}

// call is the handler with what it may do to us: a panic is its record's failure.
func (g *group) call(a *attempt, e *entry) (err error) {
	ctx := context.Context(a)
	if around := g.rt.cfg.Around; around != nil {
		derived, finished := around(a, e.r)
		ctx = derived
		defer func() { finished(err) }()
	}
	defer func() {
		if p := recover(); p != nil {
			err = fault.Recovered(p)
		}
	}()
	return fault.Usable(e.c.work.(Apply)(ctx, &a.root, e.r))
}

// conclude looks at the connection, after what the handler left open was closed.
func (g *group) conclude(e *entry, a *attempt, err, left error) verdict {
	expired := errors.Is(a.Err(), errAttempt)
	e.took = time.Since(e.since)
	g.since++
	f := g.look(e, a, err, left)
	f.expired = expired
	e.touched, e.raw, e.cause, e.deferred = f.sql, a.scope.raw, f.err, a.scope.deferred
	v := g.doubt(g.verify(judge(f), a), a.scope.doubtOf(f.err), e.anew, e)
	g.charge(e, v)
	a.end(context.Canceled) // whatever it started is over
	return v
}

func (g *group) look(e *entry, a *attempt, err, left error) facts {
	pg := g.conn.Conn().PgConn()
	f := facts{
		err: err, sql: a.scope.touched, closed: g.conn.Conn().IsClosed(), over: e.c.ctx.Err() != nil,
		busy: pg.IsBusy(), status: pg.TxStatus(),
	}
	switch {
	case err != nil:
	case left != nil:
		f.err = left
	case f.status == 'E':
		f.err = fmt.Errorf("%w: %w", errSwallowed, or(a.scope.failed, errors.New("which one is unknown")))
	}
	return f
}

// verify is witness for a handler that did not run well, before anybody is charged: it may have ended the transaction and
// begun another, and failed then. With these verdicts the way back to the savepoint is next, or no harm.
//
// commit; begin -> all rows of the group are durable -> undone like any failure, those whose handlers have not run would
// meet their own rows, and count as effected.
func (g *group) verify(v verdict, a *attempt) verdict {
	if !a.scope.raw {
		return v
	}
	switch v {
	case skipped, undone, cutOff, collided, ended:
		if !g.exec(toSavepoint) && g.unsaved {
			return escaped
		}
	case kept: // witness looks
	case leftOut, brokeOff, doubted, renewed, lost, escaped, sealed, abandoned:
	}
	return v
}

// witness sees, after a handler that had the connection itself in hand, whether the transaction is still the one that
// the inbox began: that handler may have ended it and begun another, and then the savepoint is gone.
func (g *group) witness(e *entry) verdict {
	if !e.raw || g.advance() {
		return kept
	}
	if !g.unsaved {
		return g.blame(e)
	}
	e.mode = waiting
	return g.escape(e)
}

// charge gives e the verdict of its own failure and tells the hooks.
func (g *group) charge(e *entry, v verdict) {
	class := ""
	switch v {
	case leftOut, undone, cutOff, brokeOff:
		meant, err := ofHandler(e.c.ctx, g.rt.cfg.Classifier, e.cause, v)
		class, e.charged = meant.String(), true
		g.fail(e, err)
		if v == brokeOff {
			_ = g.conn.Conn().PgConn().Conn().Close() // not pgx's Close, which would wait for the server
		}
	case kept, skipped:
	case collided, doubted, renewed, lost, ended, escaped, sealed, abandoned:
		return
	}
	g.rt.in.attempted(g.rt, e, class)
}

// rows are the ids of those fresh records of the group that match, as an array.
func (g *group) rows(match func(*entry) bool) string {
	cols := &g.w.cols
	cols.reset()
	for _, list := range [...][]*entry{g.todo, g.idle} {
		for _, e := range list {
			if match(e) {
				g.rt.column(cols, e.r)
			}
		}
	}
	return array(cols.ids)
}
