package dedup

import (
	"errors"
	"fmt"
)

// What stands on a record (Record.Err) when the inbox, and not the handler, decided. Match with errors.Is.
var (
	// ErrDead: the record is already dead at these very coordinates. Its dead letter is to be produced (again) and the
	// record settled as dead; it is never run. errors.As finds a *DeadError with the verdict.
	ErrDead = errors.New("record is already dead: its dead letter is to be produced again")
	// ErrConflict: another record with the same identity and other bytes was dealt with before. It is a dead letter with
	// reason id_conflict, never a duplicate.
	ErrConflict = errors.New("identity was used before with another value")
	// ErrCrashLoop: the record, alone in its transaction, lost its connection three times while one beside it lived
	// on, or its process died three times while it ran. It is a dead letter with reason crash_loop.
	ErrCrashLoop = errors.New("record takes down its database connection, or its process, each time it runs")
	// ErrParked: a record of its key is parked. It is to be parked behind that one, and is never run before it.
	ErrParked = errors.New("a record of its key is parked")
	// ErrStuck: the handler has ignored the end of its context for Config.HardGrace, and has not returned. Each further
	// attempt may take a goroutine and a writer more.
	ErrStuck = errors.New("handler has not returned")
	// ErrRouteStopped: a handler ended the group's transaction by itself. Nothing more of the route runs in this process.
	ErrRouteStopped = errors.New("route stopped: a handler ended the inbox's transaction")
)

var (
	// ErrNoSchema says that the database has no inbox, or one of another version. errors.Is finds migrations.ErrVersion
	// in it too.
	ErrNoSchema = errors.New("inbox is not ready")
	// ErrHandlerTx is what a handler gets for a statement or a call that would end the transaction it shares with other
	// records, or change the session for them. errors.As finds a *TxError with the facts.
	ErrHandlerTx = errors.New("not in the inbox's transaction")
)

// DeadError is the verdict that a dead row keeps: the process that reached it may have died before the dead letter was
// confirmed, and nobody else knows why.
type DeadError struct {
	// Reason is the dead letter's, as Grave has it; "" for a row that somebody wrote by hand.
	Reason string
	// Text is the last error's.
	Text string
}

func (e *DeadError) Error() string {
	return fmt.Sprintf("already dead (%s): %s", e.Reason, e.Text)
}

// Is makes every DeadError an ErrDead.
func (e *DeadError) Is(target error) bool { return target == ErrDead }

// TxError says which statement was refused. It never holds the statement's text, only its leading words.
type TxError struct {
	// Statement is what was refused: "commit", "set local", "tx.Commit", …
	Statement string
	// Why says what it would do.
	Why string
}

func (e *TxError) Error() string {
	return fmt.Sprintf("%s is refused: %s", e.Statement, e.Why)
}

// Is makes every TxError an ErrHandlerTx.
func (e *TxError) Is(target error) bool { return target == ErrHandlerTx }

// Hint is what to do instead.
func (e *TxError) Hint() string {
	return "return nil to keep the record's writes and an error to undo them; tx.Begin makes a savepoint"
}
