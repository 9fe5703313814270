package dedup

import (
	"context"
	"errors"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

var (
	errConnection = errors.New("the connection was lost")
	errSlowCommit = errors.New("its COMMIT took longer than CommitTimeout three times (a deferred trigger?)")
)

// blame counts who was running when the connection was lost. Where nobody in particular was (a savepoint, COMMIT), the
// second time separates the group; alone that says nothing about the record, and it waits for the database.
func (g *group) blame(e *entry) verdict {
	if g.unsaved {
		return g.backstop() // no connection's failure
	}
	switch alone := g.alone(); {
	case alone == nil && e == nil:
		for _, x := range g.entries {
			x.losses++
			x.solo = x.solo || x.losses >= 2
		}
	case alone == nil:
		e.solo = true
	case e == nil && !g.slow:
		alone.err = fault.Unavailable(errConnection, fault.Database)
	default:
		g.suspectKiller(alone)
	}
	return lost
}

// suspectKiller is for a record that was alone when the connection was lost. Three times it was its own doing, provided
// that each time a connection beside it has lived on: an administrator who ends all sessions, a pooler that restarts and
// a proxy that resets say nothing about the record. The tries are seconds apart.
func (g *group) suspectKiller(e *entry) {
	switch {
	case g.beside == nil && !e.watched:
		e.watched = true // from now on somebody looks
	case !g.slow && !g.othersLive():
		e.err = fault.Unavailable(errConnection, fault.Database)
	default:
		if e.lossesAlone++; e.lossesAlone >= 3 {
			g.convict(e)
			return
		}
		g.leaveTurn() // it is over: nobody need wait for the rest
		g.rest(e, time.Second<<e.lossesAlone)
	}
}

// watchBeside takes a second connection for the time of a group, to see whether it outlives the first.
func (g *group) watchBeside() {
	ctx, cancel := context.WithTimeout(g.ctx, acquireTimeout)
	defer cancel()
	conn, err := g.rt.in.pool.Acquire(ctx)
	if err != nil {
		return // then nobody has looked, and nothing is proved
	}
	if conn.Ping(ctx) != nil {
		conn.Release()
		return
	}
	g.beside = conn
}

func (g *group) leaveBeside() {
	if g.beside != nil {
		g.beside.Release()
		g.beside = nil
	}
}

func (g *group) othersLive() bool {
	if g.beside == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), acquireTimeout)
	defer cancel()
	return g.beside.Ping(ctx) == nil
}

// rest waits before the record's next try, unless its delivery ends.
func (g *group) rest(e *entry, d time.Duration) {
	backoff.WaitUnless(e.c.ctx, d, e.r.Soft())
}

// convict gives its verdict to a record that was alone three times when the connection was lost. Should its last COMMIT
// have gone through after all, that does no harm: whoever tries it again or buries it asks the inbox first.
func (g *group) convict(e *entry) {
	ctx, cancel := context.WithTimeout(context.Background(), acquireTimeout)
	defer cancel()
	err := g.rt.in.pool.Ping(ctx)
	switch {
	case err != nil:
		e.err = fault.Unavailable(err, fault.Database)
	case g.slow:
		g.fail(e, fault.Transient(errSlowCommit))
		g.rt.in.attempted(g.rt, e, fault.ClassTransient.String())
	default:
		g.fail(e, fault.Permanent(ErrCrashLoop))
		g.rt.reportKiller(e.r)
	}
}

// reportKiller tells of a record that takes down what it runs on: it may have stopped others.
func (rt *Route) reportKiller(r *record.Record) {
	rt.in.report(record.Report{
		Kind: record.ReportCrashLoop, Route: rt.cfg.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Err:  ErrCrashLoop,
		Hint: "look at its dead letter; until the handler bears it a replay will do the same",
	})
}
