package dedup

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/fault"
)

const maxGraves = 500 // rows in one transaction

// graveyard collects burials for one goroutine, which lives while there are any.
type graveyard struct {
	rt *Route

	mu      sync.Mutex
	waiting []*burial
	digging bool
}

func (y *graveyard) add(b *burial) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.digging {
		if !y.rt.in.joined() {
			return errClosed
		}
		y.digging = true
		go y.dig()
	}
	y.waiting = append(y.waiting, b)
	return nil
}

func (y *graveyard) dig() {
	defer y.rt.in.left()
	// The records of a message die at once, and this goroutine would run before those of all but the first of them: without a
	// step back that one would have a transaction of its own.
	runtime.Gosched()
	for {
		batch := y.take()
		if len(batch) == 0 {
			return
		}
		y.bury(batch)
	}
}

// take gives the next that may share a transaction, at most one of each key, in the order of their keys.
func (y *graveyard) take() (batch []*burial) {
	y.mu.Lock()
	defer y.mu.Unlock()
	seen := make(map[uuid.UUID]struct{}, min(len(y.waiting), maxGraves))
	rest := y.waiting[:0:0]
	for _, b := range y.waiting {
		if _, twice := seen[b.id.Key]; twice || len(batch) == maxGraves {
			rest = append(rest, b)
			continue
		}
		seen[b.id.Key] = struct{}{}
		batch = append(batch, b)
	}
	y.waiting = rest
	y.digging = len(batch) > 0
	slices.SortFunc(batch, func(a, b *burial) int { return bytes.Compare(a.id.Key[:], b.id.Key[:]) })
	return batch
}

// again puts back one that has another key now.
func (y *graveyard) again(b *burial) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.waiting = append(y.waiting, b)
}

// bury settles each of batch. Everything in it may be done twice, so an error or a COMMIT without an answer is tried
// again.
func (y *graveyard) bury(batch []*burial) {
	const tries = 3
	var err error
	for range tries {
		if batch = y.leased(batch); len(batch) == 0 {
			return
		}
		var answers []Answer
		if answers, err = y.transact(batch); err == nil {
			y.conclude(batch, answers)
			return
		}
		if isCode(err, codeLock) {
			if batch, err = y.withoutBusy(batch); err == nil && len(batch) == 0 {
				return
			}
		}
		if isConnect(err) {
			break
		}
	}
	for _, b := range batch {
		b.settle(unseen, fault.Unavailable(err, fault.Database))
	}
}

func (y *graveyard) conclude(batch []*burial, answers []Answer) {
	for i, b := range batch {
		switch a := answers[i]; a {
		case Fresh, DeadReplay:
			b.settle(Buried, nil)
		case IDConflict:
			b.id.Key = b.place
			y.again(b)
		case unseen, Blocked: // Bury does not ask what is parked
			y.again(b)
		case Own, OwnSkipped, Duplicate, DeadOwn, Buried:
			b.settle(a, nil)
		}
	}
}

// withoutBusy settles those whose identity another transaction has in hand, and gives the others.
func (y *graveyard) withoutBusy(batch []*burial) ([]*burial, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	busy, err := y.rt.busy(ctx, array(columnsOf(batch).ids))
	if err != nil {
		return batch, err
	}
	return slices.DeleteFunc(batch, func(b *burial) bool {
		found := slices.Contains(busy, b.id.Key.String())
		if found {
			b.settle(unseen, fault.Busy(errBusy))
		}
		return found
	}), nil
}

func columnsOf(batch []*burial) *columns {
	cols := &columns{}
	for _, b := range batch {
		cols.add(b.id.Key, b.id.ValueHash, b.id.Coordinates, b.replay)
	}
	return cols
}

// transact writes the rows and reads the answers, in one transaction.
func (y *graveyard) transact(batch []*burial) ([]Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	conn, err := y.rt.in.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	answers, err := writeGraves(ctx, conn.Conn(), y.rt.consumer, insertLockTimeout, batch)
	if err != nil {
		if !conn.Conn().IsClosed() {
			_, _ = conn.Exec(ctx, "rollback")
		}
		return nil, err
	}
	stop := time.AfterFunc(y.rt.in.cfg.CommitTimeout, func() { _ = conn.Conn().PgConn().Conn().Close() })
	defer stop.Stop()
	if y.rt.offsets != nil {
		err = y.commitMarked(conn.Conn(), batch, answers)
	} else {
		err = commit(context.Background(), conn.Conn())
	}
	if err != nil && !conn.Conn().IsClosed() {
		_, _ = conn.Exec(ctx, "rollback")
	}
	return answers, err
}

// writeGraves begins a transaction, writes the rows and reads the answers. It waits for another transaction that has one
// of the identities in hand, but not longer than patience.
func writeGraves(
	ctx context.Context, conn *pgx.Conn, consumer int32, patience time.Duration, batch []*burial,
) ([]Answer, error) {
	cols := columnsOf(batch)
	reasons, texts := make([]string, len(batch)), make([]string, len(batch))
	for i, b := range batch {
		reasons[i], texts[i] = b.reason, b.text
	}
	var written int64
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	// Of a process that is paused, or cut off, the server must not keep the locks.
	b.Queue(fmt.Sprintf("select set_config('lock_timeout', '%s', true), set_config('statement_timeout', '%s', true), "+
		"set_config('idle_in_transaction_session_timeout', '%[2]s', true)", ms(patience), ms(openTimeout)))
	b.Queue(burySQL, consumer, array(cols.ids), array(cols.hashes), array(cols.coords), reasons, texts).
		Exec(func(tag pgconn.CommandTag) error { written = tag.RowsAffected(); return nil })
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, err
	}
	answers := make([]Answer, len(batch))
	if written == int64(len(batch)) {
		return answers, nil
	}
	if err := readAnswers(ctx, conn, answerSQL, consumer, cols, func(i int, a Answer) { answers[i] = a }); err != nil {
		return nil, err
	}
	if err := moveBuried(ctx, conn, consumer, batch, answers); err != nil {
		return nil, err
	}
	return answers, buryAgain(ctx, conn, consumer, batch, answers)
}

// readAnswers asks sql, which is answerSQL or seenSQL: who is not answered is fresh.
func readAnswers(ctx context.Context, conn *pgx.Conn, sql string, consumer int32, cols *columns, give func(int, Answer)) error {
	rows, err := conn.Query(ctx, sql, cols.answerArgs(consumer)...)
	if err != nil {
		return err
	}
	return eachAnswer(rows, give)
}

func eachAnswer(rows pgx.Rows, give func(int, Answer)) error {
	var n, answer int32
	_, err := pgx.ForEachRow(rows, []any{&n, &answer}, func() error {
		give(int(n)-1, Answer(answer))
		return nil
	})
	return err
}

// buryAgain makes the dead rows of replays that failed again theirs.
func buryAgain(ctx context.Context, conn *pgx.Conn, consumer int32, batch []*burial, answers []Answer) error {
	for i, b := range batch {
		if answers[i] != DeadReplay {
			continue
		}
		tag, err := conn.Exec(ctx, buryAgainSQL, consumer, b.id.Key.String(), b.id.Coordinates, b.reason, b.text)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			answers[i] = unseen
		}
	}
	return nil
}
