package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var _ pgx.Tx = (*handlerTx)(nil)

// handlerTx is the transaction as a handler sees it, or a savepoint of it that the handler began. It works like any
// pgx.Tx, but cannot end the transaction, and is closed when the handler has returned.
type handlerTx struct {
	inner  pgx.Tx
	scope  *scope
	nested bool
	before int // of a savepoint: how much was deferred when it was made
}

// scope is what the inbox must know about a record's use of the transaction. A handler may give its transaction to a
// goroutine that outlives it: so the lock is held during each statement, and closing waits for the one that runs. A
// second statement beside a running one is refused and not queued: it may come from inside that one (the source of a
// CopyFrom), and pgx would refuse it too.
type scope struct {
	attempt *attempt
	texts   *statements

	mu      sync.Mutex
	over    bool
	anew    bool // statements are described anew, whatever the connection remembers of them
	touched bool
	raw     bool  // the handler had the connection itself in hand
	open    int   // savepoints that are not ended
	failed  error // the last error that the server gave
	rows    []pgx.Rows
	batches []pgx.BatchResults

	deferred   []deferral // wait for COMMIT
	savepoints bool       // made as text: what was deferred since does not know of their rollbacks
}

var (
	errOver      = fmt.Errorf("%w: the handler that this transaction belonged to has returned", pgx.ErrTxClosed)
	errInUse     = errors.New("transaction is in use: a statement of it is still running")
	errSwallowed = errors.New("handler returned no error although a statement had failed")
	errOpenTx    = errors.New("handler left a transaction that it began open: neither committed nor rolled back")
)

// enter lets a statement in; leave must follow when it gave no error.
func (s *scope) enter(ctx context.Context, sql ...string) error {
	if !s.mu.TryLock() {
		return errInUse
	}
	if err := s.allowed(ctx, sql); err != nil {
		s.mu.Unlock()
		return err
	}
	s.touched = true
	return nil
}

func (s *scope) allowed(ctx context.Context, sql []string) error {
	if s.over {
		return errOver
	}
	if err := ctx.Err(); err != nil { // pgx would close the connection for some calls
		return err
	}
	if err := s.attempt.Err(); err != nil { // also for a handler that hands down a context of its own
		return err
	}
	for _, text := range sql {
		known := s.texts.look(text)
		if known.err != nil {
			return known.err
		}
		s.savepoints = s.savepoints || known.saves
	}
	return nil
}

func (s *scope) leave(err error) {
	if err != nil {
		s.failed = err
	}
	s.mu.Unlock()
}

// options puts before args how pgx is to run the statement. What the handler says about that comes after it, and counts.
func (s *scope) options(args []any) []any {
	if !s.anew {
		return args
	}
	return append([]any{pgx.QueryExecModeDescribeExec}, args...)
}

// close ends the handler's use of the transaction: what it left open is closed. The error is what a savepoint left open
// amounts to; what the server said meanwhile is in s.failed, and whether it counts is seen by the transaction's state,
// for the handler may have undone it.
//
// A statement that a goroutine of the handler still runs is cancelled; otherwise the context must live until what is
// open is read to its end, for cancelling it would fail the transaction. The attempt's clock runs on meanwhile, and who
// lets this last too long is as stuck as a handler that does not return.
func (s *scope) close() error {
	if !s.mu.TryLock() {
		s.attempt.end(context.Canceled)
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	s.over = true
	for _, rows := range s.rows {
		rows.Close()
		s.failed = or(rows.Err(), s.failed)
	}
	for _, results := range s.batches {
		s.failed = or(results.Close(), s.failed)
	}
	if s.open > 0 {
		return errOpenTx
	}
	return nil
}

// Exec runs sql. One that is Deferred runs right before COMMIT.
func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if d, ok := deferredOf(sql, args); ok {
		return tag, t.scope.wait(ctx, d)
	}
	if err := t.scope.enter(ctx, sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer func() { t.scope.leave(err) }()
	return t.inner.Exec(ctx, sql, t.scope.options(args)...)
}

// Query runs sql. Rows that the handler leaves open are closed after it.
func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (rows pgx.Rows, err error) {
	if err := t.scope.enter(ctx, sql); err != nil {
		return failedRows{err}, err
	}
	defer func() { t.scope.leave(err) }()
	rows, err = t.inner.Query(ctx, sql, t.scope.options(args)...) //nolint:sqlclosecheck // the handler closes them, or the scope
	if err == nil {
		t.scope.rows = append(t.scope.rows, rows)
	}
	return rows, err
}

// QueryRow runs sql and gives its first row.
func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	return &oneRow{rows: rows, err: err, scope: t.scope}
}

// SendBatch runs b. Results that the handler leaves open are closed after it.
func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if hasDeferred(b) {
		return pgx.FailedBatchResults(b, errDeferredBatch)
	}
	texts := make([]string, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		texts[i] = q.SQL
	}
	if err := t.scope.enter(ctx, texts...); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	defer t.scope.leave(nil)
	results := t.inner.SendBatch(ctx, b)
	t.scope.batches = append(t.scope.batches, results)
	return results
}

// CopyFrom copies rows into a table.
func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, cols []string, src pgx.CopyFromSource) (n int64, err error) {
	if err := t.scope.enter(ctx); err != nil {
		return 0, err
	}
	defer func() { t.scope.leave(err) }()
	return t.inner.CopyFrom(ctx, table, cols, src)
}

// Prepare prepares sql on the connection.
func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (sd *pgconn.StatementDescription, err error) {
	if err := t.scope.enter(ctx, sql); err != nil {
		return nil, err
	}
	defer func() { t.scope.leave(err) }()
	return t.inner.Prepare(ctx, name, sql)
}

// LargeObjects gives access to large objects.
func (t *handlerTx) LargeObjects() pgx.LargeObjects {
	t.note(false)
	return t.inner.LargeObjects()
}

// Conn is the connection itself. What is done with it is checked only after the handler has returned: ending the
// transaction there stops the route.
func (t *handlerTx) Conn() *pgx.Conn {
	t.note(true)
	return t.inner.Conn()
}

func (t *handlerTx) note(raw bool) {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	t.scope.touched = true
	t.scope.raw = t.scope.raw || raw
}

// Begin makes a savepoint, which must be ended before the handler returns.
func (t *handlerTx) Begin(ctx context.Context) (tx pgx.Tx, err error) {
	if err := t.scope.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { t.scope.leave(err) }()
	inner, err := t.inner.Begin(ctx)
	if err != nil {
		return nil, err
	}
	t.scope.open++
	return &handlerTx{inner: inner, scope: t.scope, nested: true, before: len(t.scope.deferred)}, nil
}

// Commit releases a savepoint. The transaction itself is the inbox's to commit.
func (t *handlerTx) Commit(ctx context.Context) error {
	return t.finish(ctx, "tx.Commit", pgx.Tx.Commit)
}

// Rollback undoes to a savepoint. The transaction itself is the inbox's to roll back.
func (t *handlerTx) Rollback(ctx context.Context) error {
	return t.finish(ctx, "tx.Rollback", func(tx pgx.Tx, ctx context.Context) error {
		err := tx.Rollback(ctx)
		if err == nil {
			t.scope.deferred = t.scope.deferred[:min(t.before, len(t.scope.deferred))]
		}
		return err
	})
}

func (t *handlerTx) finish(ctx context.Context, name string, f func(pgx.Tx, context.Context) error) error {
	if !t.nested {
		return &TxError{Statement: name, Why: whyEnds}
	}
	if err := t.scope.enter(ctx); err != nil {
		return err
	}
	defer t.scope.leave(nil) // what failed the savepoint is known already
	if err := f(t.inner, ctx); err != nil {
		return err
	}
	t.scope.open--
	return nil
}
