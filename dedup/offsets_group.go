package dedup

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/record"
)

// placed says that a route's records are known by their place: of an offset store, whose inbox rows are the dead ones',
// and of its replays, which look for them.
func (rt *Route) placed() bool { return rt.offsets != nil || rt.parent != nil }

// key is what the inbox knows r by.
func (rt *Route) key(r *record.Record) uuid.UUID {
	if rt.placed() {
		return r.Identity.Place
	}
	return r.Identity.Key
}

// row is what the inbox stores of r. No other record has its place, so there its value does not matter.
func (rt *Route) row(r *record.Record) (key uuid.UUID, hash, coords int64) {
	if rt.placed() {
		return r.Identity.Place, 0, r.Identity.Coordinates
	}
	return r.Identity.Key, r.Identity.ValueHash, r.Identity.Coordinates
}

// column adds r to a statement.
func (rt *Route) column(cols *columns, r *record.Record) {
	key, hash, coords := rt.row(r)
	cols.add(key, hash, coords, r.Replay)
}

// openOffsets has the images' answers, after the partitions were acquired for those claims that have not. It is false if
// there is nothing to begin a transaction for.
func (g *group) openOffsets() bool {
	g.leases = g.leases[:0]
	begin := false
	for _, e := range g.entries {
		if e.err != nil {
			continue
		}
		l, err := g.leaseOf(e)
		switch {
		case g.ctx.Err() != nil:
			return false
		case errors.Is(err, errLater):
			e.answer = unseen
			continue
		case errors.Is(err, record.ErrNotRun):
			g.fail(e, record.ErrNotRun)
			continue
		case errors.Is(err, errOffsets), errors.Is(err, errNoTopicID):
			g.failPartition(e.r, err)
			continue
		case err != nil:
			g.failAll(err)
			return false
		}
		e.img = l.img
		if e.answer, e.ask, err = g.rt.offsets.answer(l.img, e.r); err != nil {
			g.leases = slices.DeleteFunc(g.leases, func(x lease) bool { return x == l }) // it marks nothing, and the others do
			g.failPartition(e.r, err)
			continue
		}
		begin = begin || e.answer == Fresh || e.ask
	}
	if !begin {
		g.sort()
	}
	return begin
}

// failPartition gives one verdict to all of r's partition: to ask for each would be a statement for each.
func (g *group) failPartition(r *record.Record, err error) {
	for _, e := range g.entries {
		if e.r.Partition == r.Partition && e.r.TopicID == r.TopicID && e.err == nil {
			g.fail(e, err)
		}
	}
}

// errLater: the record waits for the next group.
var errLater = errors.New("its partition was acquired for another claim")

// leaseOf gives the partition of e as the group has it. It never has two of one partition: what the one answers is
// nothing that the other may mark. So of two claims the second waits for the next group, and so do all when the partition
// is lost meanwhile.
func (g *group) leaseOf(e *entry) (lease, error) {
	for _, l := range g.leases {
		if p := l.img.at; p.n == e.r.Partition && p.topic == e.r.TopicID {
			if now, ok := l.img.is(e.r.Soft()); ok && now == l {
				return l, nil
			}
			return lease{}, errLater
		}
	}
	l, err := g.rt.offsets.lease(g.ctx, e.r)
	if err == nil {
		g.leases = append(g.leases, l)
	}
	return l, err
}

// askGraves asks the inbox about those that are dead as far as anybody knows, or were tried before: an operator may have
// buried them meanwhile.
func (g *group) askGraves(ctx context.Context) error {
	g.w.order = g.w.order[:0]
	g.w.cols.reset()
	for _, e := range g.entries {
		if e.ask {
			g.w.order = append(g.w.order, e)
			g.rt.column(&g.w.cols, e.r)
		}
	}
	if len(g.w.order) == 0 {
		return nil
	}
	err := readAnswers(ctx, g.conn.Conn(), answerSQL, g.rt.consumer, &g.w.cols, func(i int, a Answer) {
		e := g.w.order[i]
		if a != unseen || e.answer != DeadOwn {
			e.answer = a
		} else {
			e.verdict = &DeadError{} // its row was swept: it died long ago
		}
		if e.answer == unseen {
			e.answer = Fresh
		}
	})
	if err == nil {
		err = g.readVerdicts(ctx)
	}
	for _, e := range g.w.order {
		if e.answer == unseen && e.verdict != nil {
			e.answer = DeadOwn
		}
		if o := e.answer.Outcome(); o != record.Unsettled && o != record.Dead { // a replay of it was effected
			g.rt.offsets.leave(e.img, e.r)
		}
	}
	return err
}

// beginMark queues the marks of what is done in g.
func (g *group) beginMark(b *pgx.Batch) error {
	if g.marking = g.rt.offsets.begin(context.Background(), g.leases, g.doneOf, nobody); g.marking == nil {
		return errFenced
	}
	g.marking.queue(b)
	return nil
}

// endMark is told how the trip ended that the marks were queued for. The first call counts.
func (g *group) endMark(how ending) {
	if g.marking != nil {
		g.marking.end(how)
		g.marking = nil
	}
}

// doneOf are those that are done once g's transaction is.
func (g *group) doneOf(x *image) (rs []*record.Record) {
	for _, e := range g.todo {
		if e.img == x && (e.mode == done || e.mode == skipping) {
			rs = append(rs, e.r)
		}
	}
	return rs
}

// readGate keeps the transaction's number: should a handler end it, only that tells whether by COMMIT or by ROLLBACK.
func (g *group) readGate(passed func(pgconn.CommandTag) error) func(pgx.Row) error {
	return func(row pgx.Row) error {
		var lock, patience, idle any
		if err := row.Scan(&lock, &patience, &idle, &g.xid); err != nil {
			return err
		}
		return passed(pgconn.CommandTag{})
	}
}

// markEscaped marks what a handler made durable by a COMMIT of its own, so that it does not run again.
func (g *group) markEscaped() error {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	var durable bool
	err := g.rt.in.pool.QueryRow(ctx, "select pg_xact_status($1::text::xid8) = 'committed'", g.xid).Scan(&durable)
	if err != nil || !durable {
		return err
	}
	if err := g.saveDeferred(ctx); err != nil {
		return err
	}
	return g.rt.offsets.mark(ctx, g.leases, g.doneOf)
}
