package dedup

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// writer is a long-lived goroutine that puts a route's records into transactions, one after the other. Its stack has
// grown to what the handlers need, and its one timer looks after every deadline.
type writer struct {
	rt    *Route
	texts statements
	queue statements // for what is queued
	cols  columns
	copy  []byte // rows for COPY
	pipe  pipeline
	order []*entry

	// kept between groups, for their memory
	calls               []*call
	entries, todo, done []*entry
	line, last          []*entry
	queries             []pgx.QueuedQuery // what was queued

	mu      sync.Mutex
	group   *group
	attempt *attempt // that runs, nil between two
	running []*entry // whose attempt it is: one record, or all that a call or a pipeline is for
	ours    bool     // no handler runs: what the inbox has sent is on its way
	away    bool     // its group was taken away, and with it its place
	conn    net.Conn // to close when patience ends
	by      time.Time
	armed   time.Time // when the timer goes off, zero: never
	timer   *time.Timer
}

var (
	errDeadline = errors.New("attempt took longer than its timeout")
	errGoexit   = errors.New("handler ended its goroutine (runtime.Goexit, as t.FailNow does)")
)

func newWriter(rt *Route) *writer {
	w := &writer{rt: rt, texts: statements{solo: rt.cfg.Solo}, queue: statements{solo: rt.cfg.Solo, queued: true}}
	w.timer = time.AfterFunc(time.Hour, w.tick)
	w.timer.Stop()
	return w
}

// loop runs groups until the route is closed.
func (w *writer) loop() {
	regular := false
	defer func() { w.leave(regular) }()
	for {
		g := w.rt.take(w)
		if g == nil {
			regular = true
			return
		}
		if g.run() {
			w.rt.move(g)
			w.rt.finish(g)
			w.keep(g)
		} else if !w.comeBack() {
			regular = true
			return
		}
	}
}

// leave gives up the writer's place. A handler that ends its goroutine takes the writer with it: then its group is
// settled, and another writer takes the place.
func (w *writer) leave(regular bool) {
	switch {
	case !regular && (w.abandon(errGoexit) || w.comeBack()):
		go newWriter(w.rt).loop()
	case !w.gone():
		w.rt.in.left()
	}
}

// comeBack takes the writer's place again after its group was taken away: the handler has returned at last. It is false
// when the inbox is closed, or the place was never given up.
func (w *writer) comeBack() bool {
	if !w.gone() {
		return false
	}
	w.rt.in.stuck.remove(w)
	if !w.rt.in.joined() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = false
	return true
}

func (w *writer) gone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away
}

// keep takes the memory of a group back for the next one, without what it pointed to.
func (w *writer) keep(g *group) {
	for _, list := range [...][]*entry{g.entries, g.todo, g.done, w.order, w.line, w.running} {
		clear(list)
	}
	clear(g.calls)
	w.pipe.reset()
	clear(w.queries)
	w.queries = w.queries[:0]
	w.calls, w.entries, w.todo, w.done = g.calls, g.entries, g.todo, g.done
}

// begin starts the clock of an attempt, of all of es.
func (w *writer) begin(g *group, a *attempt, es ...*entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.group, w.attempt, w.ours = g, a, false
	w.running = append(w.running[:0], es...)
	w.watch(a.deadline)
	for _, e := range es {
		if err := e.c.ctx.Err(); err != nil {
			// The delivery ended before this clock started, so its end found nobody to tell.
			a.end(err)
			return
		}
	}
}

// hand says who runs from now on under the clock of a: the inbox itself, for all of es, or a handler of theirs. It is
// false if the group was taken away meanwhile.
func (w *writer) hand(a *attempt, ours bool, es ...*entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attempt != a {
		return false
	}
	w.ours, w.running = ours, append(w.running[:0], es...)
	return true
}

// end stops the clock and reports whether the group is still this goroutine's.
func (w *writer) end(a *attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attempt != a {
		return false
	}
	w.group, w.attempt = nil, nil
	return true
}

// watch makes the timer go off at t or before. The lock is held. As a rule the timer is set for an earlier record and
// stays: when it goes off it looks at whose turn it is.
func (w *writer) watch(t time.Time) {
	if w.armed.IsZero() || t.Before(w.armed) {
		w.armed = t
		w.timer.Reset(time.Until(t))
	}
}

// impatient closes conn unless patient is called within d, which reports whether it was. It bounds what must not be
// cancelled: our own statements between handlers, and COMMIT.
func (w *writer) impatient(conn net.Conn, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn, w.by = conn, time.Now().Add(d)
	w.watch(w.by)
}

func (w *writer) patient() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	inTime := w.conn != nil
	w.conn = nil
	return inTime
}

func (w *writer) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = time.Time{}
	now := time.Now()
	switch {
	case w.conn != nil && now.Before(w.by):
		w.watch(w.by)
	case w.conn != nil:
		_ = w.conn.Close()
		w.conn = nil
	case w.attempt == nil:
	case now.Before(w.attempt.deadline):
		w.watch(w.attempt.deadline)
	default:
		w.overdue(now)
	}
}

// overdue ends the context of an attempt whose time is up, and takes the group away from a handler that does not care.
func (w *writer) overdue(now time.Time) {
	w.attempt.end(errAttempt)
	last := w.attempt.deadline.Add(w.rt.in.cfg.HardGrace)
	if now.Before(last) {
		w.watch(last)
		return
	}
	if w.ours {
		_ = w.group.conn.Conn().PgConn().Conn().Close()
		return
	}
	w.takeAway(fault.Transient(fmt.Errorf("%w (%s) and ignored its context for %s: %w",
		errDeadline, w.rt.cfg.AttemptTimeout, w.rt.in.cfg.HardGrace, ErrStuck)))
}

// endAttempt ends the context of the attempt that runs, if it is one of c.
func (w *writer) endAttempt(g *group, c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.group == g && slices.ContainsFunc(w.running, func(e *entry) bool { return e.c == c }) {
		w.attempt.end(c.ctx.Err())
	}
}

// abandon gives up the group in hand from the writer's own goroutine, which is ending. It is false if there is none.
func (w *writer) abandon(why error) bool {
	w.mu.Lock()
	g := w.group
	w.group, w.attempt = nil, nil
	w.mu.Unlock()
	if g == nil {
		return false
	}
	_ = g.conn.Conn().PgConn().Conn().Close()
	g.conn.Release()
	w.fell(g, why, fault.ClassPermanent)
	w.rt.finish(g)
	return true
}

// fell gives its verdict to a handler that did not return as handlers do. In company nothing says whose failure it is:
// each of its records runs alone next time.
func (w *writer) fell(g *group, why error, class fault.Class) {
	for _, e := range w.running {
		e.r.End()
		if len(w.running) > 1 {
			e.mode, e.solo = waiting, true
			continue
		}
		e.took = time.Since(e.since)
		g.fail(e, why)
		w.rt.in.attempted(w.rt, e, class.String())
	}
}

// takeAway settles a group whose handler is stuck, from the timer's goroutine: its connection is closed, so that the
// server frees its rows, the stuck record fails, and the others are back in line for the remaining writers. The lock is
// held: the handler's return waits for it, sees that the attempt is no longer the current one, and touches nothing.
func (w *writer) takeAway(why error) {
	g, e := w.group, w.running[0]
	since := e.since
	w.away = true
	w.group, w.attempt = nil, nil
	w.calls, w.entries, w.todo, w.done, w.line, w.queries, w.pipe = nil, nil, nil, nil, nil, nil, pipeline{}
	// Out of the pool, which otherwise could not be closed; the handler may still hold it, so only its socket is closed.
	_ = g.conn.Hijack().PgConn().Conn().Close()
	w.fell(g, why, fault.ClassTransient)
	w.rt.in.stuck.add(w, w.rt, e.r, since)
	g.turn.leave() // a mark stays until the handler returns
	w.rt.in.report(record.Report{
		Kind: record.ReportStuckRecord, Route: w.rt.cfg.Name, Topic: e.r.Topic, Partition: e.r.Partition, Offset: e.r.Offset,
		Age: time.Since(since), Err: errDeadline,
		Hint: "the handler ignores its context; its goroutine and this writer are lost until it returns",
	})
	w.rt.finish(g)
	w.rt.in.left()
}
