package dedup

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// begin is BEGIN, the route's lock, time limits, the rows, a savepoint: one round trip, or two if the rows are copied.
func (g *group) begin() (step int, err error) {
	g.began = time.Now()
	if err := g.connect(); err != nil {
		return stepBegin, err
	}
	if g.rt.offsets == nil {
		g.sortRows()
	}
	ctx, cancel := context.WithTimeout(g.ctx, openTimeout)
	defer cancel()
	t := &opening{g: g, way: g.wayIn()}
	results := g.conn.SendBatch(ctx, t.batch())
	if err := results.Close(); err != nil {
		return t.step, err
	}
	g.tx = results.Tx()
	if g.rt.offsets != nil {
		return stepSavepoint, g.askGraves(ctx)
	}
	if t.copies() {
		if err := g.copyRows(ctx, t.way, t.patience()+"; savepoint "+savepoint); err != nil {
			return stepInsert, err
		}
	}
	return stepSavepoint, t.answers(ctx)
}

// opening is a group's first trip.
type opening struct {
	g     *group
	way   way
	step  int // that it got to
	known int // records
}

func (t *opening) batch() *pgx.Batch {
	g, b := t.g, &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: g.rt.cfg.Isolation, AccessMode: pgx.ReadWrite})
	b.QueuedQueries[0].Exec(t.passed)
	if g.rt.offsets != nil {
		b.Queue(t.gate()+", pg_current_xact_id()::text", g.rt.consumer).QueryRow(g.readGate(t.passed))
	} else {
		b.Queue(t.gate(), g.rt.consumer).Exec(t.passed)
	}
	g.askParked(b)
	switch {
	case g.rt.offsets != nil:
	case t.way == copied:
		return b
	case t.way == asked:
		b.Queue(seenSQL, g.w.columns().answerArgs(g.rt.consumer)...).Query(t.readKnown)
		return b
	default:
		cols := g.w.columns()
		b.Queue(insertSQL, g.rt.consumer, array(cols.ids), array(cols.hashes), array(cols.coords)).Exec(t.wrote)
	}
	b.Queue(t.patience()).Exec(t.passed)
	b.Queue("savepoint " + savepoint).Exec(t.passed)
	return b
}

func (t *opening) passed(pgconn.CommandTag) error { t.step++; return nil }

func (t *opening) wrote(tag pgconn.CommandTag) error {
	t.known = len(t.g.w.order) - int(tag.RowsAffected())
	return t.passed(tag)
}

func (t *opening) readKnown(rows pgx.Rows) error {
	return eachAnswer(rows, func(i int, a Answer) {
		t.g.w.order[i].answer = a
		t.known++
	})
}

// copies says whether there is another trip, for the rows and what follows them. A single record may be a replay that is
// to take its row over, which takes a savepoint.
func (t *opening) copies() bool {
	return t.way != inserted && (t.known < len(t.g.w.order) || t.g.alone() != nil)
}

// answers learns what the inbox says about each record, when not all are new.
func (t *opening) answers(ctx context.Context) error {
	g := t.g
	if t.known == 0 {
		g.rt.caution.pass()
		return nil
	}
	g.rt.caution.raise()
	var err error
	if t.way == inserted {
		err = readAnswers(ctx, g.conn.Conn(), answerSQL, g.rt.consumer, &g.w.cols, func(i int, a Answer) { g.w.order[i].answer = a })
	}
	if err == nil {
		err = g.readVerdicts(ctx)
	}
	if err == nil {
		err = g.takeOver(ctx)
	}
	return err
}

func (t *opening) gate() string {
	if t.g.rt.exclusive() {
		return t.g.rt.sql.exclusive
	}
	return t.g.rt.sql.shared
}

func (t *opening) patience() string {
	if t.g.alone() != nil {
		return t.g.rt.sql.alone
	}
	return t.g.rt.sql.together
}
