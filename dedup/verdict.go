package dedup

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/fault"
)

// SQLSTATEs. Nothing is ever known by an error's text: servers speak many languages.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeUnique        = "23505"
	codeLock          = "55P03"
	codeCancelled     = "57014"
	codeNoSavepoint   = "3B001"
	codeNoStatement   = "26000"
	codeUnsupported   = "0A000"
	codeProtocol      = "08P01"
)

// verdict is what becomes of a record after its handler has run, and of the group with it.
type verdict uint8

const (
	// kept: its writes stand and wait for COMMIT.
	kept verdict = iota
	// skipped: its row stays, its writes (if any) are undone.
	skipped
	// leftOut: it failed before it executed any SQL; nothing is to be undone. One attempt.
	leftOut
	// undone: it failed; back to the savepoint, the others of the chunk run again. One attempt.
	undone
	// cutOff is undone, and the group ends there: a slow culprit is never run again in company. One attempt.
	cutOff
	// collided: it met another transaction, not its own fault: cut, the route's lock goes exclusive. No attempt.
	collided
	// brokeOff: it left the connection unusable: closed, everything else again. One attempt.
	brokeOff
	// doubted: back to the savepoint, and it runs again with every statement described anew. No attempt.
	doubted
	// renewed: all connections are made anew, everything again. No attempt.
	renewed
	// lost: the connection is gone; everything again. No attempt, unless it is the killer.
	lost
	// ended: the delivery ended. Everything is rolled back, the others again. No attempt.
	ended
	// escaped: the handler ended the transaction. The rows of what is not done are taken back, the route stops.
	escaped
	// sealed: COMMIT was in the same trip, and its answer has been dealt with.
	sealed
	// abandoned: the handler ignored its deadline for so long that the group was taken away from this goroutine.
	abandoned
)

// facts are what is seen when a handler has returned. sql says whether it executed any.
type facts struct {
	err     error
	sql     bool
	closed  bool
	busy    bool
	status  byte // of the transaction: 'T' fine, 'E' failed, 'I' gone
	expired bool // the attempt's deadline passed
	over    bool // the delivery ended
}

// judge is the verdict table for a handler.
//
//	outside of a transaction                           escaped
//	the delivery ended                                 ended: another member will get the record, so nothing is charged
//	connection closed by an argument it cannot encode  brokeOff
//	connection closed                                  lost
//	busy after closing what we know of                 brokeOff
//	nil, state 'T'                                     kept
//	Skip                                               skipped
//	40001, 40P01, 55P03                                collided
//	57014, or the deadline passed                      cutOff: Transient
//	error or panic, no SQL executed                    leftOut
//	error, panic, swallowed SQL error after SQL        undone
//
// Before anybody is charged, verify has a look where the handler had the connection itself in hand, and for undone or
// brokeOff doubt has.
func judge(f facts) verdict {
	_, skip := fault.AsSkip(f.err)
	switch {
	case f.status == 'I': // whatever else has happened: rows may be durable without their effects
		return escaped
	case f.over:
		return ended
	case f.closed && isEncoding(f.err):
		return brokeOff
	case f.closed:
		return lost
	case f.busy:
		return brokeOff
	case f.err == nil:
		return kept
	case skip:
		return skipped
	case isConflict(f.err):
		return collided
	case isCode(f.err, codeCancelled) || f.expired:
		return cutOff
	case !f.sql && f.status == 'T':
		return leftOut
	}
	return undone
}

// builtIn knows what an error means to nobody in particular.
var builtIn = &fault.Classifier{}

// ofHandler gives a handler's error the meaning that only the inbox knows, unless the handler gave it one by a verb, or
// the route by a rule: nothing commits before our COMMIT, so what a deadline or a lost answer leaves is known to be
// undone, never ambiguous. ctx is the delivery's: that the attempt's own was over is in v.
func ofHandler(ctx context.Context, c *fault.Classifier, err error, v verdict) (class fault.Class, meant error) {
	f := c.Classify(ctx, err)
	if (v == cutOff || f.Class == fault.ClassAmbiguous) && !fault.Said(err) && f == builtIn.Classify(ctx, err) {
		return fault.ClassTransient, fault.Transient(err)
	}
	return f.Class, err
}

// ending is how a COMMIT ended.
type ending uint8

const (
	// committed: durable.
	committed ending = iota
	// rolledBack: the server refused, for a reason that lies in the records (a deferred constraint).
	rolledBack
	// conflicted: the server refused, for a reason that lies between transactions.
	conflicted
	// notSent: the server never saw it.
	notSent
	// released: the savepoint is gone, so the transaction is not the one that the inbox began.
	released
	// fenced: another claim has acquired a partition of an offset store, so that nothing of the transaction stands.
	fenced
	// refusedMark: the server refused the marks of an offset store, for a reason that lies in no record.
	refusedMark
	// unknown: it may be durable or not; only the inbox can tell.
	unknown
)

// judgeCommit is the verdict table for the trip that ends with COMMIT. Only an answer of severity ERROR says that the
// transaction was rolled back: a FATAL may follow the commit record, like a lost connection.
func judgeCommit(tag string, err error) ending {
	pg := serverError(err)
	switch {
	case err == nil && tag == "COMMIT":
		return committed
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback):
		return rolledBack
	case errors.Is(err, errFenced), pg != nil && pg.Code == codeFenced:
		return fenced
	case isConflict(err):
		return conflicted
	case pg != nil && pg.Code == codeNoSavepoint:
		return released
	case pg != nil && severity(pg) == "ERROR":
		return rolledBack
	case pgconn.SafeToRetry(err):
		return notSent
	}
	return unknown
}

// severity is in the server's language unless it has the unlocalised one, as all since 9.6 have.
func severity(pg *pgconn.PgError) string { return pg.SeverityUnlocalized }

func isConflict(err error) bool {
	return isCode(err, codeSerialization) || isCode(err, codeDeadlock) || isCode(err, codeLock)
}

func isCode(err error, code string) bool {
	pg := serverError(err)
	return pg != nil && pg.Code == code
}

// isServerError is an answer of the server that leaves the connection usable.
func isServerError(err error) bool {
	pg := serverError(err)
	return pg != nil && severity(pg) == "ERROR"
}

// serverError is the server's answer in err, nil if there is none. A handler may hand on a nil *pgconn.PgError, which
// errors.As finds.
func serverError(err error) *pgconn.PgError {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg
	}
	return nil
}

// isEncoding: pgx closes the connection when an argument in the middle of a long batch cannot be encoded.
func isEncoding(err error) bool {
	var pre pgx.ErrPreprocessingBatch
	return errors.As(err, &pre)
}
