package dedup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

const (
	// acquireTimeout bounds the wait for a connection; past it the database counts as unavailable.
	acquireTimeout = 5 * time.Second
	// openTimeout bounds the opening trip: with it a dead network is noticed, and the wait for the route's lock ends.
	openTimeout = 15 * time.Second
	// atMostBusy is how many ids in other hands are looked for at a time: a millisecond each.
	atMostBusy = 100
)

// The steps of the opening trip, in order: which one failed says what is in the way.
const (
	stepBegin = iota
	stepGate
	stepInsert
	stepPatience
	stepSavepoint
)

var errBusy = errors.New("identity is in the hands of another transaction")

// open begins the transaction, inserts the rows and sorts the records by the inbox's answers. It is false when there is
// nothing to run: everybody has a verdict or goes back in line.
func (g *group) open() bool {
	if g.rt.offsets != nil && !g.openOffsets() {
		return false
	}
	for try := 0; ; try++ {
		step, err := g.begin()
		if err == nil {
			return g.sort()
		}
		g.disconnect()
		switch {
		case g.ctx.Err() != nil: // a delivery of this group is ending: on without it
			return false
		case errors.Is(err, errKnown):
			try--
		case isCode(err, codeLock) && step == stepInsert && g.rt.offsets == nil:
			if try > 0 {
				g.findBusy()
				return false
			}
			if !g.pause() {
				return false
			}
		case try == 0 && doubtOf(err) != none && g.rt.in.renew(g.began):
			// A migration of the inbox's own tables: once more, on a new connection.
		case isConflict(err):
			if e := g.alone(); e != nil {
				e.cause = err
				g.collide(e)
			} else {
				g.rt.conflict()
			}
			return false
		case isServerError(err), isConnect(err), try > g.rt.in.cfg.MaxConns:
			g.failAll(fault.Unavailable(err, fault.Database))
			return false
		}
		// A connection that had died in the pool: the next one may be as dead, but there are only so many.
	}
}

func (g *group) connect() error {
	conn, err := g.rt.in.acquire(g.ctx)
	g.conn = conn
	return err
}

// disconnect gives the connection back, without a transaction or, if it cannot be brought to that, dead.
func (g *group) disconnect() {
	if g.conn == nil {
		return
	}
	if pg := g.conn.Conn().PgConn(); !g.conn.Conn().IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		g.exec("rollback")
	}
	g.conn.Release()
	g.conn = nil
}

// sortRows puts the rows in the order of their ids, the same in every group.
func (g *group) sortRows() {
	g.w.order = g.w.order[:0]
	for _, e := range g.entries {
		if e.first == nil {
			key := g.rt.key(e.r)
			e.rank = binary.BigEndian.Uint64(key[:])
			g.w.order = append(g.w.order, e)
		}
	}
	slices.SortFunc(g.w.order, func(a, b *entry) int {
		if a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		x, y := g.rt.key(a.r), g.rt.key(b.r)
		return bytes.Compare(x[:], y[:])
	})
	for _, e := range g.w.order {
		e.answer = Fresh
	}
}

// columns fills a statement's arrays with the rows in order.
func (w *writer) columns() *columns {
	w.cols.reset()
	for _, e := range w.order {
		w.rt.column(&w.cols, e.r)
	}
	return &w.cols
}

// readVerdicts learns why records are dead, for the dead letters that are produced again. A row that is not dead any
// more (a replay has just taken it over) has another answer now.
func (g *group) readVerdicts(ctx context.Context) error {
	var ids []byte
	dead := make(map[uuid.UUID]*entry)
	for _, e := range g.w.order {
		if e.answer == DeadOwn {
			key := g.rt.key(e.r)
			ids = appendUUID(separated(ids), key)
			dead[key], e.answer = e, unseen
		}
	}
	if len(dead) == 0 {
		return nil
	}
	rows, err := g.conn.Query(ctx, verdictsSQL, g.rt.consumer, array(ids))
	if err != nil {
		return err
	}
	var id, reason, text string
	_, err = pgx.ForEachRow(rows, []any{&id, &reason, &text}, func() error {
		e := dead[uuid.MustParse(id)]
		e.answer, e.verdict = DeadOwn, &DeadError{Reason: reason, Text: text}
		return nil
	})
	return err
}

// takeOver makes a dead row the replayed record's, in its own transaction. A replay in company waits until it is alone.
// The savepoint moves behind it: what the handler did may be undone to there, and the row still is the replay's.
func (g *group) takeOver(ctx context.Context) error {
	e := g.alone()
	if e == nil || e.answer != DeadReplay {
		return nil
	}
	tag, err := g.conn.Exec(ctx, takeOverSQL, g.rt.consumer, g.rt.key(e.r).String(), e.r.Identity.Coordinates)
	switch {
	case err != nil:
		return err
	case tag.RowsAffected() == 0:
		e.answer = unseen // another replay was faster: ask again
		return nil
	}
	_, err = g.conn.Exec(ctx, moveSavepoint)
	return err
}

// sort makes the verdicts that the answers are, and the list of those that run.
func (g *group) sort() bool {
	var counts [len(answerNames)]int
	for _, e := range g.entries {
		if e.err != nil {
			continue // it has its verdict: nobody can tell whether it is fresh
		}
		if e.first != nil {
			g.sortTwin(e)
			continue
		}
		fresh := e.answer == Fresh
		if e.parked && (fresh || e.answer == DeadReplay) {
			e.answer = Blocked
		}
		if e.answer < unseen {
			counts[e.answer]++
		}
		switch {
		case g.behindHeld(e):
			// in line: one it must stay behind is
			if fresh {
				g.idle = append(g.idle, e)
			}
		case e.answer == Blocked:
			if fresh {
				g.idle = append(g.idle, e)
			}
			g.fail(e, fault.Busy(ErrParked))
		case e.answer == Fresh, e.answer == DeadReplay && g.alone() != nil:
			g.todo = append(g.todo, e)
		case e.answer == DeadReplay:
			e.solo = true
			g.hold(e)
		case e.answer == unseen:
			g.hold(e)
		case e.answer == IDConflict:
			g.fail(e, fault.Permanent(ErrConflict))
		case e.answer == DeadOwn:
			g.fail(e, fault.Permanent(e.verdict))
		default:
			e.outcome = e.answer.Outcome()
		}
	}
	g.rt.in.answered(g.rt, counts[:])
	g.firm = g.w.frailLast(g.todo)
	return len(g.todo) > 0
}

// pause waits a moment for the other transaction; false when a delivery is ending.
func (g *group) pause() bool {
	return backoff.Wait(g.ctx, 20*time.Millisecond+rand.N(40*time.Millisecond))
}

// findBusy gives Busy to those whose identity is in the hands of another transaction, and lets the others run without
// them. It tries each id for a millisecond in a transaction that is rolled back.
func (g *group) findBusy() {
	if e := g.alone(); e != nil {
		g.fail(e, fault.Busy(errBusy))
		return
	}
	busy, err := g.queryBusy()
	if err != nil {
		return // back in line; the next opening says what is wrong
	}
	for _, e := range g.entries {
		switch {
		case slices.Contains(busy, g.rt.key(e.r).String()):
			g.fail(e, fault.Busy(errBusy))
		case g.behindFailed(e):
			g.fail(e, record.ErrNotRun)
		}
	}
}

func (g *group) queryBusy() ([]string, error) {
	ctx, cancel := context.WithTimeout(g.ctx, openTimeout)
	defer cancel()
	return g.rt.busy(ctx, array(g.w.cols.ids))
}

// rollBack ends a transaction that is not committed, also when ctx is over. A server that does not answer is not waited for:
// pgx closes the connection.
func rollBack(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acquireTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// busy gives those of ids, at most atMostBusy, that another transaction is inserting.
func (rt *Route) busy(ctx context.Context, ids string) (busy []string, err error) {
	tx, err := rt.in.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer rollBack(ctx, tx)
	rows, err := tx.Query(ctx, busySQL, rt.consumer, ids, atMostBusy)
	if err != nil {
		return nil, fmt.Errorf("find busy ids: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func isConnect(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect) || errors.Is(err, context.DeadlineExceeded)
}
