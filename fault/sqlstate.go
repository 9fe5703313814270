package fault

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// states are the SQLSTATEs that differ from their class. The server may speak any language (lc_messages): codes are
// all that counts.
var states = map[string]Class{
	"08007": ClassAmbiguous, // transaction resolution unknown

	"25006": ClassUnavailable, // read only: a failover left us at a standby
	"25P02": ClassTransient,   // the transaction had failed: what failed first was swallowed, so nothing says permanent
	"25P03": ClassTransient,   // idle in transaction too long: the attempt took too long
	"25P04": ClassTransient,   // transaction timeout

	"26000": ClassTransient, // prepared statement unknown: a pooler gave us another server connection
	"42P05": ClassTransient, // prepared statement exists: the same

	"3D000": ClassUnavailable, // no such database: our configuration

	"40001": ClassTransient, // serialization failure
	"40P01": ClassTransient, // deadlock
	"40000": ClassTransient, // rolled back, no reason given
	"40003": ClassAmbiguous, // statement completion unknown

	// Only a statement that spills more than temp_file_limit raises it. Held, it would come again for ever.
	"53400": ClassTransient,

	"55006": ClassTransient, // object in use
	"55P03": ClassBusy,      // lock not available

	"57014": ClassTransient, // cancelled, by a timeout mostly: undone in any case

	"72000": ClassTransient, // snapshot too old
}

// stateClasses are the two-character classes of SQLSTATE; those that are missing are Permanent: data (22), constraints
// (23, a 23505 of the handler's own table included, which says nothing about the message), syntax and access (42),
// program limits (54), exceptions raised by a trigger (P0).
var stateClasses = map[string]Class{
	"08": ClassUnavailable, // connection; pgbouncer answers 08P01 for much of what is wrong with it
	"28": ClassUnavailable, // our credentials, not the record
	"53": ClassUnavailable, // disk full, out of memory, too many connections
	"57": ClassUnavailable, // shutdown, crash, starting up, database dropped
	"58": ClassUnavailable, // i/o errors
	"F0": ClassUnavailable, // configuration file
	// Internal errors, corruption among them. Some pass ("tuple concurrently updated"), some do not; held, a single bad
	// page would block its partition for ever.
	"XX": ClassTransient,
}

func sqlstate(e stater, call bool) Fault {
	code := e.SQLState()
	f := Fault{Class: classOfState(e, code), Rule: "sqlstate " + code}
	if f.Class == ClassUnavailable {
		f.Dependency = Database
	}
	if f.Class == ClassAmbiguous && !call {
		f.Class = ClassTransient // before COMMIT nothing is
	}
	return f
}

func classOfState(e stater, code string) Class {
	if class, ok := states[code]; ok {
		return class
	}
	if len(code) == 5 {
		if class, ok := stateClasses[code[:2]]; ok {
			return class
		}
	}
	return classOfServer(e)
}

// classOfServer looks at what else pgx knows, none of it translated: a FATAL has ended the connection, whatever its
// code; and a plan that a migration made stale is prepared anew by the next attempt.
func classOfServer(e stater) Class {
	var pg *pgconn.PgError
	switch {
	case !errors.As(e, &pg):
		return ClassPermanent
	case pg.SeverityUnlocalized == "FATAL", pg.SeverityUnlocalized == "PANIC":
		return ClassUnavailable
	case pg.Code == "0A000" && pg.Routine == "RevalidateCachedQuery":
		return ClassTransient
	}
	return ClassPermanent
}
