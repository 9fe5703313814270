package main

import "github.com/headrace/headrace/dlq"

// advice is what a reason means and what to do about it. docs/operations.md has the same words; a test compares them.
type advice struct{ meaning, action string }

var advised = map[dlq.Reason]advice{
	dlq.Permanent: {
		"the handler, or a rule of the route, said that trying again cannot help",
		"fix the handler or what the record refers to, then replay",
	},
	dlq.Exhausted: {
		"its attempts or its time were spent, each on a failure that might have passed",
		"see that what it needs is well again, then replay",
	},
	dlq.UnknownOutcome: {
		"a call was sent, nobody knows whether it was carried out, and its attempts are spent or it may not be repeated",
		"look in the other system whether it was done; replay only if it was not, or if it knows the idempotency key",
	},
	dlq.Undecodable: {
		"its bytes are not what the route expects",
		"fix the decoder and replay; or have the producer send it again, right and under a new id: under the same one it would be an id_conflict with these bytes",
	},
	dlq.Panic: {
		"the handler panicked; the stack is in the letter",
		"fix the handler, then replay",
	},
	dlq.IDConflict: {
		"another record with the same id and other bytes was there first; that one counts",
		"ask the producer which is right; --new-id replays this one as a record of its own: a second effect beside the one that counts (a second charge, a second posting)",
	},
	dlq.CrashLoop: {
		"the process died three times while it handled this record",
		"find out what killed it (memory, a fatal error of the runtime), fix it, then replay",
	},
	dlq.Manual: {
		"an operator said so",
		"ask them; replay when the cause is gone",
	},
}
