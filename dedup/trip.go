package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/fault"
)

// trip is one pipeline: what the records of a group have queued, and, unless it is split, COMMIT.
//
//	[rollback to the savepoint] ─► those ahead ─► [the savepoint moves] ─► the others ─► flush ─► before COMMIT ─► COMMIT
//
// While records of the route fail, the trip is not for all, and the savepoint moves on its way (reach.go).
//
// The server skips what comes after an error, so nothing of a trip commits that did not go through as a whole. The flush
// lets the answers to the records' statements come while COMMIT is still on its way: from then on no deadline may cancel
// anything, for a COMMIT that is cancelled while it waits for a standby stands without it.
type trip struct {
	g     *group
	line  []*entry
	ahead int  // how many ran well before and run again, for those behind a savepoint moved behind them
	again bool // from the savepoint
	on    bool // from where the trip before has come to, behind which the savepoint moves
	every int  // the savepoint moves behind each so many of the others, 0: it does not
	frail bool // the others are likely to fail
	blind int  // the first of the others of whom there is a function for a result: behind it the savepoint stays
	split bool
	tail  []queuedStatement // before COMMIT

	a    *attempt
	p    *pgconn.Pipeline
	last time.Time // when the answers to a record had come

	// what came of it
	at     int   // the first of line that failed; len(line) if none did
	err    error // what with
	ours   bool  // it failed at a statement of the inbox's own, before COMMIT
	called bool  // a function for a result failed, and not a statement
	taken  bool  // the group was taken away
	sealed bool  // all went through, COMMIT was sent
	tag    string
	ending error // COMMIT's
}

// allowance is what a pipeline has on top of AttemptTimeout, which is the limit of each of its statements: one that takes
// too long is stopped by the server, which says which one it was.
func (g *group) allowance() time.Duration {
	return min(g.rt.cfg.AttemptTimeout/10, g.rt.in.cfg.HardGrace/2)
}

// run sends the trip and reads the answers.
func (t *trip) run() {
	t.at = len(t.line)
	w := t.g.w
	now := time.Now()
	t.a = &attempt{Context: t.line[0].c.ctx, deadline: now.Add(t.g.rt.cfg.AttemptTimeout + t.g.allowance())}
	for _, e := range t.line {
		e.r.BeginAt(now)
	}
	w.begin(t.g, t.a, t.line...)
	w.hand(t.a, true, t.line...)
	t.p, t.last = t.g.conn.Conn().PgConn().StartPipeline(t.a), now
	t.exchange()
	if t.taken {
		return
	}
	if t.sealed {
		t.conclude()
		return
	}
	t.close()
	t.taken = !w.end(t.a)
	t.end()
}

func (t *trip) end() {
	if t.taken {
		return
	}
	for _, e := range t.line {
		e.r.End()
	}
}

// close leaves the pipeline. What is still to be answered is read; what is wrong with it is known.
func (t *trip) close() {
	if err := t.p.Close(); t.err == nil && err != nil {
		t.err, t.ours = err, true
	}
}

// exchange sends everything and reads the answers up to the flush.
//
// A function for a result of those ahead fails -> the server, which has seen no error, goes on and moves the savepoint
// behind that record -> going back to it would keep what the record wrote. So where there are such functions the rest is
// sent when they are through, and on its way the savepoint moves no further than to the first of them.
func (t *trip) exchange() {
	apart := t.ahead < len(t.line) && t.looks(t.line[:t.ahead])
	t.blind = t.ahead
	for t.every > 0 && t.blind < len(t.line) && !t.looks(t.line[t.blind:t.blind+1]) {
		t.blind++
	}
	if !t.sendAhead() || apart && (!t.sync() || !t.readAhead() || !t.readSync()) {
		return
	}
	if !t.sendOthers() || !t.sync() || !apart && !t.readAhead() {
		return
	}
	t.sealed = t.readOthers() && !t.split
}

// looks says whether there are functions for results of es.
func (t *trip) looks(es []*entry) bool {
	for _, e := range es {
		if slices.ContainsFunc(t.statements(e), func(s queuedStatement) bool { return s.fn != nil }) {
			return true
		}
	}
	return false
}

func (t *trip) sendAhead() bool {
	if t.again {
		t.own(toSavepoint)
	}
	return t.send(0, t.ahead)
}

func (t *trip) sendOthers() bool {
	if !t.send(t.ahead, len(t.line)) {
		return false
	}
	if t.split {
		return true
	}
	t.p.SendFlushRequest()
	for _, s := range t.tail {
		s.send(t.p, s.values, s.types, s.fn != nil)
	}
	for _, sql := range commitTexts {
		t.own(sql)
	}
	return true
}

// moves says whether the savepoint moves right before the record at i.
func (t *trip) moves(i int) bool {
	switch {
	case i == 0:
		return t.on
	case i <= t.ahead || t.every == 0:
		return i == t.ahead
	}
	return i <= t.blind && (i-t.ahead)%t.every == 0
}

// stands is the last up to at right before which the savepoint has moved, 0 for none.
func (t *trip) stands(at int) int {
	for at > 0 && !t.moves(at) {
		at--
	}
	return at
}

// part is how many statements go to the server together: it works on them while the next are written, and pgx makes a buffer
// anew for whatever it writes at once.
const part = 256

func (t *trip) send(from, to int) bool {
	n := 0
	for i := from; i < to; i++ {
		if t.moves(i) {
			t.own(moveTexts[0])
			t.own(moveTexts[1])
		}
		for _, s := range t.statements(t.line[i]) {
			s.send(t.p, s.values, s.types, s.fn != nil)
			if n++; n%part == 0 && !t.sent(t.p.Flush()) {
				return false
			}
		}
	}
	return true
}

func (t *trip) sync() bool { return t.sent(t.p.Sync()) }

func (t *trip) sent(err error) bool {
	if err != nil {
		t.at, t.err, t.ours = 0, err, true
	}
	return err == nil
}

func (t *trip) own(sql string) { t.p.SendQueryParams(sql, nil, nil, nil, nil) }

func (t *trip) statements(e *entry) []queuedStatement {
	return t.g.w.pipe.statements[e.from:e.to]
}

func (t *trip) readAhead() bool {
	if t.again && !t.readOwn(0) {
		return false
	}
	return t.read(0, t.ahead)
}

func (t *trip) readOthers() bool { return t.read(t.ahead, len(t.line)) }

// read reads the answers to those from, up to to, in the order of send.
func (t *trip) read(from, to int) bool {
	for i, e := range t.line[from:to] {
		if t.moves(from+i) && !t.readMove(from+i) {
			return false
		}
		err := t.readAll(e)
		if t.taken {
			return false
		}
		now := time.Now()
		e.took, t.last = e.took+now.Sub(t.last), now
		if err != nil {
			t.at, t.err = from+i, err
			return false
		}
	}
	return true
}

// readSync reads that the server has come to the end of those ahead.
func (t *trip) readSync() bool {
	if _, err := t.p.GetResults(); err != nil {
		t.at, t.err, t.ours = t.ahead, err, true
		return false
	}
	return true
}

func (t *trip) readMove(at int) bool {
	for range moveTexts {
		if !t.readOwn(at) {
			return false
		}
	}
	return true
}

func (t *trip) readOwn(at int) bool {
	if _, err := t.result(); err != nil {
		t.at, t.err, t.ours = at, err, true
		return false
	}
	return true
}

// result reads the next answer to its end.
func (t *trip) result() (tag pgconn.CommandTag, err error) {
	rr, err := t.next()
	if err != nil {
		return tag, err
	}
	return rr.Close()
}

func (t *trip) next() (*pgconn.ResultReader, error) {
	got, err := t.p.GetResults()
	if err != nil {
		return nil, err
	}
	rr, ok := got.(*pgconn.ResultReader)
	if !ok {
		return nil, fmt.Errorf("pipeline answered %T to a statement", got)
	}
	return rr, nil
}

// readAll reads what the statements of e came to.
func (t *trip) readAll(e *entry) error {
	for _, s := range t.statements(e) {
		rr, err := t.next()
		if err != nil {
			return err
		}
		if s.fn == nil {
			if _, err := rr.Close(); err != nil {
				return err
			}
			continue
		}
		if err := t.callback(e, s.fn, rr); err != nil {
			return err
		}
	}
	return nil
}

// callback lets the handler see a result. From here on a hang is the handler's.
func (t *trip) callback(e *entry, fn func(pgx.BatchResults) error, rr *pgconn.ResultReader) error {
	w, batch := t.g.w, e.attempt.batch
	result := &oneResult{rr: rr, rows: pgx.RowsFromResultReader(t.g.conn.Conn().TypeMap(), rr)}
	queued := batch.Len()
	w.hand(t.a, false, e)
	failed := protected(func() error { return fn(result) })
	if !w.hand(t.a, true, t.line...) {
		t.taken = true // while it hung: nothing here is ours any more
		return errOver
	}
	if _, err := rr.Close(); err != nil {
		return err
	}
	if failed == nil && batch.Len() > queued {
		failed = errQueuedLate
	}
	t.called = failed != nil
	return failed
}

var errQueuedLate = errors.New("a function for a result queued a statement, which is too late")

// protected is f with its panic as an error.
func protected(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Recovered(p)
		}
	}()
	return fault.Usable(f())
}

// conclude reads what comes after the flush. The attempt is over: neither its deadline nor the end of a delivery may
// cancel COMMIT.
func (t *trip) conclude() {
	w := t.g.w
	if t.taken = !w.end(t.a); t.taken {
		return
	}
	w.impatient(t.g.conn.Conn().PgConn().Conn(), t.g.rt.in.cfg.CommitTimeout)
	for range len(t.tail) + len(commitTexts) {
		tag, err := t.result()
		if err != nil {
			t.ending = err
			break
		}
		t.tag = tag.String()
	}
	if err := t.p.Close(); t.ending == nil {
		t.ending = err
	}
	t.g.slow = !w.patient()
	t.end()
}

// oneResult is what a function for a result reads.
type oneResult struct {
	rr   *pgconn.ResultReader
	rows pgx.Rows
}

var _ pgx.BatchResults = (*oneResult)(nil)

var errOneResult = errors.New("a function for a result reads that one result only")

func (r *oneResult) take() (pgx.Rows, error) {
	if r.rows == nil {
		return failedRows{errOneResult}, errOneResult
	}
	rows := r.rows
	r.rows = nil
	return rows, nil
}

// Exec reads the result to its end.
func (r *oneResult) Exec() (pgconn.CommandTag, error) {
	if r.rows == nil {
		return pgconn.CommandTag{}, errOneResult
	}
	r.rows = nil
	return r.rr.Close()
}

// Query gives the rows.
func (r *oneResult) Query() (pgx.Rows, error) { return r.take() }

// QueryRow gives the first row.
func (r *oneResult) QueryRow() pgx.Row {
	rows, _ := r.take()
	return firstRow{rows}
}

// Close is not the function's to call.
func (r *oneResult) Close() error { return nil }

// Tx is not there.
func (r *oneResult) Tx() pgx.Tx { return nil }

type firstRow struct{ rows pgx.Rows }

func (r firstRow) Scan(dest ...any) error { return scanOne(r.rows, dest) }

// stageTail makes ready what comes before COMMIT.
func (g *group) stageTail() ([]queuedStatement, error) {
	b := &pgx.Batch{}
	if err := g.beforeCommit(b); err != nil {
		return nil, err
	}
	n := len(g.w.pipe.statements)
	conn := g.conn.Conn()
	all := textsOf(conn)
	found := make([]*text, 0, b.Len())
	var fresh []*text
	for _, q := range b.QueuedQueries {
		x, ask := all.find(q.SQL)
		found = append(found, x)
		if ask {
			fresh = append(fresh, x)
		}
	}
	if len(fresh) > 0 {
		if conn.PgConn().TxStatus() == 'E' { // a failed transaction describes nothing
			g.exec(toSavepoint)
		}
		g.w.impatient(conn.PgConn().Conn(), g.rt.in.cfg.CommitTimeout)
		err := all.describe(context.Background(), conn, fresh, func() bool { return false })
		g.w.patient()
		if err != nil {
			return nil, err
		}
	}
	for i, q := range b.QueuedQueries {
		if err := g.w.pipe.add(conn.TypeMap(), found[i], q); err != nil {
			return nil, err
		}
	}
	return g.w.pipe.statements[n:], nil
}
