package dedup

import (
	"context"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// commitSQL ends the transaction in one trip. The savepoint's release is the witness that it is still the transaction
// that the inbox began: if it is not there the rest of the text is not executed. The server's statement timeout is off
// for COMMIT: there it would mean to give up the wait for a standby and call that a success.
const commitSQL = "release savepoint " + savepoint + "; set local statement_timeout = 0; commit"

// commit makes what is done durable, and gives the outcomes.
func (g *group) commit() {
	if !g.worthCommitting() {
		return
	}
	if !g.prepare() {
		g.blame(nil)
		return
	}
	if g.gone.Load() {
		return
	}
	tag, err := g.sendCommit()
	switch judgeCommit(tag, err) {
	case committed:
		g.outcomes()
		g.tell("committed")
	case rolledBack:
		g.refused(err)
		g.tell("rolled_back")
	case conflicted:
		g.tell("rolled_back")
		if e := g.alone(); e != nil {
			e.cause, g.mark = err, 0
			g.collide(e)
			return
		}
		g.rt.conflict()
		g.separate()
	case notSent:
		g.tell("rolled_back")
		g.blame(nil)
	case released:
		g.tell("unknown")
		g.backstop()
	case unknown:
		// The records go back in line, and the next insert's answer says which end it was: own coordinates are effected.
		g.tell("unknown")
		g.blame(nil)
	}
}

func (g *group) worthCommitting() bool {
	for _, e := range g.todo {
		if e.mode == done || e.mode == skipping {
			return true
		}
	}
	return false
}

// prepare takes back the rows of those that are not done, and marks those that were skipped.
func (g *group) prepare() bool {
	return g.execRows(takeBackSQL, func(e *entry) bool { return e.mode == waiting || e.mode == failing }) &&
		g.execRows(skipSQL, func(e *entry) bool { return e.mode == skipping })
}

func (g *group) execRows(sql string, match func(*entry) bool) bool {
	ids := g.rows(match)
	if ids == "{}" {
		return true
	}
	g.w.impatient(g.conn.Conn().PgConn().Conn(), g.rt.in.cfg.CommitTimeout)
	defer g.w.patient()
	_, err := g.conn.Exec(context.Background(), sql, g.rt.consumer, ids)
	return err == nil
}

func (g *group) sendCommit() (tag string, err error) {
	g.w.impatient(g.conn.Conn().PgConn().Conn(), g.rt.in.cfg.CommitTimeout)
	t, err := g.conn.Exec(context.Background(), commitSQL)
	g.slow = !g.w.patient()
	return t.String(), err
}

func (g *group) outcomes() {
	for _, e := range g.todo {
		switch e.mode {
		case done:
			e.outcome = record.Effected
		case skipping:
			e.outcome = record.Skipped
		case waiting, failing:
		}
	}
}

// refused: a deferred constraint, most likely. In company nothing says whose, so each record gets a transaction of its
// own; alone it is the record's failure.
func (g *group) refused(err error) {
	e := g.alone()
	if e == nil {
		g.separate()
		return
	}
	if err == nil {
		err = errSwallowed
	}
	e.cause = err
	class, err := ofHandler(e.c.ctx, g.rt.cfg.Classifier, err, undone)
	if class == fault.ClassCancelled {
		return
	}
	g.fail(e, err)
	g.rt.in.attempted(g.rt, e, class.String())
}

// backstop: the savepoint was gone at the very end. Whose handler did it is unknown, but it was one since the savepoint:
// what they wrote is durable in part, so none of them is settled and the route stops.
func (g *group) backstop() {
	for _, e := range g.done[g.mark:] {
		e.mode = waiting
	}
	if len(g.todo) > 0 {
		g.escape(g.todo[min(g.next, len(g.todo))-1])
	}
}

// tell tells the hook of a transaction.
func (g *group) tell(result string) {
	if f := g.rt.in.cfg.Hooks.OnGroup; f != nil {
		f(record.GroupInfo{
			Route: g.rt.cfg.Name, Records: len(g.todo), Result: result, Took: time.Since(g.began),
		})
	}
}
