package dedup

import (
	"fmt"

	"github.com/headrace/headrace/record"
)

// Answer is what the inbox says about one record.
type Answer uint8

// The answers. Fresh to DeadReplay come from a group's insert and from Look; Bury gives Buried, Own, OwnSkipped,
// Duplicate or DeadOwn.
const (
	// Fresh: nobody has dealt with this identity; the row is ours now and the handler runs.
	Fresh Answer = iota
	// Own: this very record (same coordinates) was effected before.
	Own
	// OwnSkipped: this very record was skipped before.
	OwnSkipped
	// Duplicate: another record with this identity and value was dealt with.
	Duplicate
	// IDConflict: another record with this identity and another value was dealt with.
	IDConflict
	// DeadOwn: this very record is dead: its dead letter is to be produced again.
	DeadOwn
	// DeadReplay: the record was read from the replay topic and takes over the dead row.
	DeadReplay
	// Buried: the dead row was written by this call.
	Buried
	// Blocked: nobody has dealt with this identity, and its key is parked: it must wait behind that (Look alone says so).
	Blocked

	// unseen: the row that was in the insert's way is gone again. Nothing is known; ask again.
	unseen
)

var answerNames = [...]string{
	"fresh", "own", "own_skipped", "duplicate", "id_conflict", "dead_own", "dead_replay", "buried", "blocked",
}

// Answers are the texts that record.InboxInfo.Answer can have.
var Answers = answerNames[:]

func (a Answer) String() string {
	if int(a) < len(answerNames) {
		return answerNames[a]
	}
	return fmt.Sprintf("answer(%d)", uint8(a))
}

// Outcome is what a record with this answer settles with; Unsettled for those that must run or fail first.
func (a Answer) Outcome() record.Outcome {
	switch a {
	case Own:
		return record.Effected
	case OwnSkipped:
		return record.Skipped
	case Duplicate:
		return record.Duplicate
	case Buried, DeadOwn:
		return record.Dead
	case Fresh, IDConflict, DeadReplay, Blocked, unseen:
		return record.Unsettled
	}
	return record.Unsettled
}
