package record

import "fmt"

// Outcome is how a record ended for one route. Exactly one becomes durable for every record and route, and only then
// does the offset move: records = effected + duplicate + skipped + dead + parked.
type Outcome uint8

// The outcomes. The zero value is no outcome: the record is not settled.
const (
	// Unsettled is the zero value: no outcome yet.
	Unsettled Outcome = iota
	// Effected: the handler's writes and the inbox row were committed in one transaction.
	Effected
	// Duplicate: another record with this identity is effected, skipped or dead; nothing new was written.
	Duplicate
	// Skipped: the handler returned fault.Skip; only the inbox row was written.
	Skipped
	// Dead: the verdict is in the inbox and a lossless copy in the dead letter topic.
	Dead
	// Parked: the record waits in Postgres and will be tried again at its due time.
	Parked
	// Foreign: a record of the consumer group's replay topic that belongs to another route. Outside the ledger.
	Foreign
	// Acked: acknowledged by a handler that runs without Headrace's stack. Outside the ledger.
	Acked
)

// Outcomes are those of the ledger, in the order of its sum.
var Outcomes = [...]Outcome{Effected, Duplicate, Skipped, Dead, Parked}

var outcomeNames = [...]string{"unsettled", "effected", "duplicate", "skipped", "dead", "parked", "foreign", "acked"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}
