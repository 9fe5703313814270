package dedup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// Work is what a route does with its records: an [Apply], a [Queue] or a [Batch]. It is sealed.
type Work interface{ kind() Kind }

// Kind says how a route's effects get into the transaction. All kinds give the same promise; they differ in what a
// handler may do, and in round trips.
type Kind uint8

const (
	// Executed effects: each record's handler executes its SQL on the transaction, one after the other.
	Executed Kind = iota
	// Queued effects: each record's handler queues its SQL, and all that a group queued is one round trip.
	Queued
	// Grouped effects: one handler gets all records of a group and writes for all of them at once.
	Grouped
)

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

var kindNames = [...]string{"executed", "queued", "grouped"}

// Apply is one record's effects: everything it writes, it writes through tx, and nothing else. It may run more than once
// before its effects stand once, because others share its transaction. ctx ends with the attempt and with the delivery.
//
// nil keeps the effects, fault.Skip keeps none and settles the record as skipped, any other error or a panic undoes them.
type Apply func(ctx context.Context, tx pgx.Tx, r *record.Record) error

// Queue is one record's effects as SQL that it queues in b, and touches nothing else: it has no connection, and what it
// does elsewhere would be done again. The statements of all records of a group, and COMMIT, are one round trip.
//
// A statement sees what those before it wrote, also those of the records before. One that fails, also for an argument
// that cannot be encoded, is its own record's failure. b is the record's alone and is read when the handler has
// returned: what is queued later is lost, and arguments must not change any more. Each text is one statement; names of
// statements prepared elsewhere are not known. In a pool whose exec mode is the simple protocol, arguments are sent as
// in pgx.QueryExecModeExec.
//
// Functions for the results (QueuedQuery.Exec, Query and QueryRow) run when these arrive, and their error is the
// record's. COMMIT then takes a round trip of its own. They too may run more than once, and must not queue.
//
// Errors mean what they mean for an Apply.
type Queue func(ctx context.Context, b *pgx.Batch, r *record.Record) error

// Batch is the effects of all fresh records of a group at once, written through tx alone: for set-based SQL. rs are in
// order, and never empty. It may run more than once before its effects stand once, with fewer records each time.
//
// nil keeps the effects of all. fault.Members names those that failed: everything is undone, and the handler runs again
// without them. An error that says nothing about a record (fault.Unavailable, a lost connection, a conflict) is
// everybody's. fault.Skip skips all. With any other error or panic the records are halved until those are found that
// fail alone: an error then costs about 2·log2(len(rs)) more runs for each of them.
//
// A deadline that passes says nothing about a record either: each gets a transaction of its own.
type Batch func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error

// KindOf says of which kind w is.
func KindOf(w Work) Kind { return w.kind() }

func (Apply) kind() Kind { return Executed }
func (Queue) kind() Kind { return Queued }
func (Batch) kind() Kind { return Grouped }
