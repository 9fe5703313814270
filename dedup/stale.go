package dedup

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// A connection remembers statements: their plans on the server, and in pgx and in texts the types of their parameters and
// columns. A migration that runs beside the consumer makes that memory wrong, for healthy records. So what may come of
// it is nobody's failure the first time: the statement is described anew and the record runs once more, free of charge.
//
//	the first failure of a record, executed or in a batch  back to the savepoint, run again with every statement described anew
//	at a queued record, the first of its group             the same with the texts of the line
//	again, certainly stale (prepared by name)              every connection is made anew, everything again, once a record
//	an argument that pgx could not encode in a pgx.Batch   the same: the connection is gone
//	at a statement of the inbox's own                      the same, once a group
//
// What fails after that is the record's own.

// doubt is how likely it is that an error lies in what a connection remembers.
type doubt uint8

const (
	none doubt = iota
	// possible: types do not fit. As a rule it is the record's own failure.
	possible
	// certain: the server says so.
	certain
)

// The routine's name is the same in every language.
const routineRevalidate = "RevalidateCachedQuery"

func doubtOf(err error) doubt {
	pg := serverError(err)
	switch {
	case pg == nil:
		return none
	case pg.Code == codeNoStatement, pg.Code == codeUnsupported && pg.Routine == routineRevalidate:
		return certain
	}
	switch pg.Code {
	case "42804", "42846", "42883", "42725", "42P18", // types that do not fit, functions that are not there for them
		"42704", "XX000", // a type that is gone: "cache lookup failed"
		"22P02", "22P03", "22003", // values of another type
		codeProtocol: // a row of more columns than were asked for
		return possible
	}
	return none
}

// doubtOf adds what a handler's statement failed with, whatever the handler made of it. An error that no server gave on
// a connection that lives is pgx's, which could not encode an argument.
func (s *scope) doubtOf(err error) doubt {
	if s.failed != nil && serverError(s.failed) == nil {
		return possible
	}
	return max(doubtOf(err), doubtOf(s.failed))
}

// remembers says whether conn has a memory of statements that nobody has prepared by name.
func remembers(conn *pgx.Conn) bool {
	mode := textsOf(conn).mode
	return mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeCacheDescribe
}

// doubt looks again at v, the verdict about a handler that failed for es, before anybody is charged for it. anew: every
// statement was described anew. It is v if it finds nothing.
func (g *group) doubt(v verdict, d doubt, anew bool, es ...*entry) verdict {
	switch {
	case v == brokeOff && d == possible, v == undone && d == certain && (anew || !remembers(g.conn.Conn())):
		if g.renew(es...) {
			return renewed
		}
	case v == undone && d != none && !anew && remembers(g.conn.Conn()):
		return doubted
	}
	return v
}

// renew makes every connection of the pool anew, once for each of es: it is false if all of them have had that.
func (g *group) renew(es ...*entry) bool {
	again := false
	for _, e := range es {
		again = again || !e.renewed
		e.renewed = true
	}
	if !again || !g.rt.in.renew(g.began) {
		return false
	}
	_ = g.conn.Conn().PgConn().Conn().Close()
	return true
}

// atLeast is how old a connection must be for its memory to be in doubt: records that fail in that way each for itself
// must not have every connection made anew for each of them.
const atLeast = time.Second

// renew makes every connection anew that is older than since: those that are in use when they are given back. It is
// false if they were that young already.
func (in *Inbox) renew(since time.Time) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.renewed.After(since):
		return true
	case time.Since(in.renewed) < atLeast:
		return false
	}
	in.renewed = time.Now()
	in.pool.Reset()
	return true
}

// staleEnd is for a COMMIT that was refused for what the connection remembers of the inbox's own statements.
func (g *group) staleEnd(how ending, err error) bool {
	d := doubtOf(err)
	return (how == rolledBack && d == certain || how == refusedMark && d != none) && g.renew(g.entries...)
}

// inDoubt says whether t failed at a record for what the connection remembers of its statements, or may have. Nothing is
// remembered from before once the group has described its texts anew.
func (g *group) inDoubt(t *trip) (doubt, bool) {
	if t.called || g.anew || !remembers(g.conn.Conn()) || g.conn.Conn().IsClosed() {
		return none, false
	}
	d := doubtOf(t.err)
	return d, d != none
}

// restage describes the texts of the line anew and encodes it again. resend says that this has changed something, so that
// the record at which the trip failed is not to blame.
func (g *group) restage(d doubt) (resend bool, v verdict) {
	if !g.exec(toSavepoint) { // a failed transaction describes nothing
		return false, g.blame(nil)
	}
	all := textsOf(g.conn.Conn())
	old := g.forget(all)
	if v := g.stage(); v != kept {
		return false, v
	}
	return d == certain || all.differ(old), kept
}

// forget gives up what is known of texts, and what was encoded by it.
func (g *group) forget(all *texts) (old map[string]*text) {
	g.anew = true
	g.w.pipe.cut(0)
	return all.forget()
}
