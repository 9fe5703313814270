package dedup

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// commitTexts end the transaction. The savepoint's release is the witness that it is still the transaction that the inbox
// began: if it is not there nothing after it is executed. The server's statement timeout is off for COMMIT: there it
// would mean to give up the wait for a standby and call that a success.
var commitTexts = [...]string{"release savepoint " + savepoint, "set local statement_timeout = 0", "commit"}

// commitSQL is all of them in one text, for a trip with nothing else in it.
var commitSQL = strings.Join(commitTexts[:], "; ")

// commit makes what is done durable, and gives the outcomes.
func (g *group) commit() {
	if !g.worthCommitting() || g.gone.Load() {
		return
	}
	g.concluded(g.sendCommit())
}

// concluded gives the outcomes by COMMIT's answer.
func (g *group) concluded(tag string, err error) {
	how := g.marksEnd(judgeCommit(tag, err), err)
	g.endMark(how)
	if g.staleEnd(how, err) {
		g.tell("rolled_back") // back in line, free of charge
		return
	}
	switch how {
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
	case fenced:
		g.tell("rolled_back") // back in line, free of charge: whoever still has a claim acquires the partition again
	case refusedMark:
		g.tell("rolled_back")
		g.failAll(fault.Unavailable(err, fault.Database))
	case released:
		g.tell("unknown")
		g.backstop()
	case unknown:
		// The records go back in line, and the next insert's answer says which end it was: own coordinates are effected.
		g.tell("unknown")
		g.blame(nil)
	}
}

// marksEnd is how, by whether the marks of an offset store were taken. After them, or where there are none, it is the
// records' own transaction that is refused, be it by a deferred trigger that raises our code.
func (g *group) marksEnd(how ending, err error) ending {
	taken := g.marking == nil || g.marking.written
	switch {
	case how == fenced && taken && !errors.Is(err, errFenced):
		return rolledBack
	case how == rolledBack && !taken:
		return refusedMark
	}
	return how
}

func (g *group) worthCommitting() bool {
	for _, e := range g.todo {
		if e.mode == done || e.mode == skipping {
			return true
		}
	}
	return false
}

// beforeCommit queues what goes before COMMIT in its own trip, in this order: what was deferred, the rows of those that
// are not done are taken back, those that were skipped are marked. An error of one of them is COMMIT's: the server skips
// what comes after.
//
// Of an offset store it is only the mark of what is done, for which it takes the partitions' turns: whatever becomes of the
// trip, endMark must be told. The error is errFenced when the group has been overtaken; nothing must be sent then.
func (g *group) beforeCommit(b *pgx.Batch) error {
	if g.rt.offsets != nil {
		return g.beginMark(b)
	}
	g.queueDeferred(b)
	if ids := g.rows(func(e *entry) bool { return e.mode == waiting || e.mode == failing }); ids != "{}" {
		b.Queue(takeBackSQL, g.rt.consumer, ids)
	}
	if ids := g.rows(func(e *entry) bool { return e.mode == skipping }); ids != "{}" {
		b.Queue(skipSQL, g.rt.consumer, ids)
	}
	return nil
}

func (g *group) sendCommit() (tag string, err error) {
	if g.rt.offsets != nil {
		if err := g.sendDeferred(); err != nil {
			return "", err
		}
	}
	b := &pgx.Batch{}
	if err := g.beforeCommit(b); err != nil {
		return "", err
	}
	g.w.impatient(g.conn.Conn().PgConn().Conn(), g.rt.in.cfg.CommitTimeout)
	defer func() { g.slow = !g.w.patient() }()
	if b.Len() == 0 {
		t, err := g.conn.Exec(context.Background(), commitSQL)
		return t.String(), err
	}
	for _, text := range commitTexts {
		b.Queue(text)
	}
	b.QueuedQueries[b.Len()-1].Exec(func(t pgconn.CommandTag) error {
		tag = t.String()
		return nil
	})
	err = g.conn.SendBatch(context.Background(), b).Close()
	return tag, err
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

// backstop: the savepoint was gone, at the very end or on the way back to it. Whose handler did it is unknown, but it was
// one since the savepoint: what they wrote is durable in part, so none of them is settled and the route stops.
func (g *group) backstop() verdict {
	for _, e := range g.done[g.mark:] {
		e.mode = waiting
	}
	if g.next == 0 {
		return lost // no handler has run
	}
	return g.escape(g.todo[min(g.next, len(g.todo))-1])
}

// tell tells the hook of a transaction.
func (g *group) tell(result string) {
	if g.told {
		return
	}
	g.told = true
	if f := g.rt.in.cfg.Hooks.OnGroup; f != nil {
		f(record.GroupInfo{
			Route: g.rt.cfg.Name, Records: len(g.todo), Result: result, Took: time.Since(g.began),
		})
	}
}
