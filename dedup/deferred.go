package dedup

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// Deferred is the only argument of a statement that may wait until right before COMMIT, where those of all records of a
// group become one: a round trip a group instead of one a record. Package outbox has the one that there is.
//
// A handler executes or queues it like any other statement, on any kind of route. What becomes of its record becomes of
// it: undone, run again or left out, also by the rollback of a transaction that the handler began with tx.Begin. Nothing
// of it is visible to the statements of the transaction, and its error is COMMIT's: each record of the group is tried
// alone then. Outside of the inbox it is an ordinary statement, because it rewrites itself.
type Deferred interface {
	pgx.QueryRewriter
	// QueueAll queues what does the work of all, whose statements have the same text, in their order. This one is the first.
	QueueAll(b *pgx.Batch, all []Deferred)
}

// deferral is a statement that waits for COMMIT.
type deferral struct {
	sql string
	arg Deferred
}

// deferredOf finds out whether a statement may wait.
func deferredOf(sql string, args []any) (deferral, bool) {
	if len(args) != 1 {
		return deferral{}, false
	}
	arg, ok := args[0].(Deferred)
	return deferral{sql, arg}, ok
}

var (
	errDeferredBatch = errors.New("a statement that waits for COMMIT is in a batch of a handler that executes: " +
		"execute it on the transaction (outbox.Publisher), or make the route one that queues")
	errDeferredSavepoint = errors.New("a statement that waits for COMMIT would survive the rollback to a savepoint that was made as text: " +
		"make it with tx.Begin")
)

// wait keeps d for COMMIT.
func (s *scope) wait(ctx context.Context, d deferral) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.savepoints {
		return errDeferredSavepoint
	}
	s.deferred = append(s.deferred, d)
	return nil
}

// hasDeferred says whether one of b's statements may wait.
func hasDeferred(b *pgx.Batch) bool {
	for _, q := range b.QueuedQueries {
		if _, ok := deferredOf(q.SQL, q.Arguments); ok {
			return true
		}
	}
	return false
}

// queueDeferred queues what the records that are done have waiting, in their order.
func (g *group) queueDeferred(b *pgx.Batch) {
	var texts []string
	all := map[string][]Deferred{}
	for _, e := range g.todo {
		if e.mode != done {
			continue
		}
		for _, d := range e.deferred {
			if all[d.sql] == nil {
				texts = append(texts, d.sql)
			}
			all[d.sql] = append(all[d.sql], d.arg)
		}
	}
	for _, sql := range texts {
		all[sql][0].QueueAll(b, all[sql])
	}
}

// sendDeferred is queueDeferred in a trip of its own. An offset store needs one: its marks hold the turns of partitions
// until COMMIT is answered, and by whether they were taken it is told whose an error is. The savepoint goes first: where a
// handler has ended the transaction nothing must be written outside of one.
func (g *group) sendDeferred() error {
	b := &pgx.Batch{}
	for _, text := range moveTexts {
		b.Queue(text)
	}
	if g.queueDeferred(b); b.Len() == len(moveTexts) {
		return nil
	}
	g.w.impatient(g.conn.Conn().PgConn().Conn(), g.rt.in.cfg.CommitTimeout)
	defer func() { g.slow = !g.w.patient() }()
	return g.conn.SendBatch(context.Background(), b).Close()
}

// saveDeferred writes what waited for the COMMIT of a transaction that a handler has committed by itself.
func (g *group) saveDeferred(ctx context.Context) error {
	b := &pgx.Batch{}
	if g.queueDeferred(b); b.Len() == 0 {
		return nil
	}
	return g.rt.in.pool.SendBatch(ctx, b).Close()
}

// saveEscaped is saveDeferred where the inbox's rows tell whether the handler ended the transaction by COMMIT.
func (g *group) saveEscaped(ids string) error {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	var durable bool
	if err := g.rt.in.pool.QueryRow(ctx, anyRowSQL, g.rt.consumer, ids).Scan(&durable); err != nil || !durable {
		return err
	}
	return g.saveDeferred(ctx)
}

const anyRowSQL = `select exists (select from headrace.inbox where consumer_id = $1::int and message_id = any($2::text::uuid[]))`
