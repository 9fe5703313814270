package dedup

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// stage makes what was queued ready to be sent: checks it, asks the server about texts that the connection does not know
// yet, and encodes the arguments. What cannot be sent is its record's failure, and nothing of it was; unless it does not
// fit what the connection remembers: that is asked for once more.
func (g *group) stage() verdict {
	all := textsOf(g.conn.Conn())
	all.begin()
	v := g.describeLine(all)
	if v == kept && !g.encodeLine(all) {
		g.forget(all)
		if v = g.describeLine(all); v == kept {
			g.encodeLine(all)
		}
	}
	g.line = g.standing(g.line)
	return v
}

func (g *group) describeLine(all *texts) verdict {
	var fresh []*text
	for _, e := range g.line {
		if e.mode != waiting {
			continue
		}
		var err error
		if fresh, err = g.lookUp(e, all, fresh); err != nil {
			e.cause = err
			g.charge(e, leftOut)
		}
	}
	if len(fresh) == 0 {
		return kept
	}
	return g.describe(all, fresh)
}

// encodeLine encodes the arguments. It is false, and nobody is to blame, if one does not fit a description from before.
func (g *group) encodeLine(all *texts) bool {
	for _, e := range g.line {
		if e.mode == waiting && !g.encode(e, all) {
			return false
		}
	}
	return true
}

// lookUp finds the texts of e's statements.
func (g *group) lookUp(e *entry, all *texts, fresh []*text) ([]*text, error) {
	for i := range e.queries {
		q := &e.queries[i]
		if err := g.rewrite(e, q); err != nil {
			return fresh, err
		}
		if err := g.w.queue.check(q.SQL); err != nil {
			return fresh, err
		}
		if x, ask := all.find(q.SQL); ask {
			fresh = append(fresh, x)
		}
	}
	return fresh, nil
}

// rewrite does what pgx does with an argument that makes the text and the other arguments (pgx.NamedArgs).
func (g *group) rewrite(e *entry, q *pgx.QueuedQuery) error {
	if len(q.Arguments) == 0 {
		return nil
	}
	by, ok := q.Arguments[0].(pgx.QueryRewriter)
	if !ok {
		return nil
	}
	return protected(func() (err error) {
		q.SQL, q.Arguments, err = by.RewriteQuery(e.c.ctx, g.conn.Conn(), q.SQL, q.Arguments[1:])
		return err
	})
}

func (g *group) describe(all *texts, fresh []*text) verdict {
	conn := g.conn.Conn()
	g.w.impatient(conn.PgConn().Conn(), g.rt.cfg.AttemptTimeout+g.rt.in.cfg.HardGrace)
	err := all.describe(context.Background(), conn, fresh, func() bool {
		_, err := conn.Exec(context.Background(), toSavepoint)
		return err == nil
	})
	g.w.patient()
	switch {
	case err == nil:
		return kept
	case isConflict(err): // with one who alters a table
		return g.collideAll(g.line, err)
	}
	return g.blame(nil)
}

func (g *group) encode(e *entry, all *texts) bool {
	pipe := &g.w.pipe
	e.from = len(pipe.statements)
	for i := range e.queries {
		q := &e.queries[i]
		x, _ := all.find(q.SQL)
		if err := pipe.add(g.conn.Conn().TypeMap(), x, q); err != nil {
			if x.remembered && !g.anew {
				return false
			}
			pipe.cut(e.from)
			e.cause = err
			g.charge(e, leftOut)
			return true
		}
		g.split = g.split || q.Fn != nil
	}
	e.to = len(pipe.statements)
	return true
}

// standing gives those of line that are to be sent: nobody before them has failed.
func (g *group) standing(line []*entry) []*entry {
	standing := line[:0]
	for _, e := range line {
		switch {
		case e.mode != waiting:
		case g.behindFailed(e):
			g.fail(e, record.ErrNotRun)
		default:
			standing = append(standing, e)
		}
	}
	return standing
}
