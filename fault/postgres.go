package fault

import (
	"database/sql/driver"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// stater is an error with an SQLSTATE: pgx's and lib/pq's alike.
type stater interface {
	error
	SQLState() string
}

// retrier is how pgx marks its own errors: true if nothing was sent.
type retrier interface {
	error
	SafeToRetry() bool
}

// postgres knows pgx. ConnectError comes first: it wraps whatever went wrong while connecting, 53300 and 28P01 as well
// as a refused dial, is never "safe to retry" in pgx's words, and is always the database, never the record.
func postgres(head []error, call bool) (Fault, bool) {
	if has[*pgconn.ConnectError](head) || has[*pgconn.ParseConfigError](head) {
		return databaseDown("postgres connect"), true
	}
	if e, ok := first[stater](head); ok {
		return sqlstate(e, call), true
	}
	// ErrBadConn is database/sql's word for a connection that is gone and executed nothing.
	if is(head, pgconn.ErrConnClosed, puddle.ErrClosedPool, driver.ErrBadConn) {
		return databaseDown("postgres connection closed"), true
	}
	if e, ok := first[retrier](head); ok {
		return postgresIO(head, e.SafeToRetry(), call)
	}
	return Fault{}, false
}

// postgresIO judges pgx's own errors that carry no SQLSTATE. Not safe to retry says only that something was sent; until
// a COMMIT is sent that matters to nobody, so in an Apply it is a connection lost and nothing more.
func postgresIO(head []error, unsent, call bool) (Fault, bool) {
	switch {
	case unsent && timedOut(head):
		return Fault{Class: ClassTransient, Rule: "postgres timeout before send"}, true
	case timedOut(head):
		return cutShort(call, "postgres timeout"), true
	case unsent && lost(head), lost(head) && !call:
		return databaseDown("postgres connection lost"), true
	case unsent: // a busy connection: the handler's own doing, so it must not be held for ever
		return Fault{Class: ClassTransient, Rule: "postgres not sent"}, true
	case lost(head):
		return Fault{Class: ClassAmbiguous, Rule: "postgres connection lost"}, true
	}
	return Fault{}, false
}

func databaseDown(rule string) Fault {
	return Fault{Class: ClassUnavailable, Dependency: Database, Rule: rule}
}
