// Package dedup is the inbox: it gives each record its effects exactly once.
//
// The inbox is a table in the database that the handlers write to. A record's row and its effects are one transaction:
// the row is inserted first, and if it is there already, the record was dealt with and its handler does not run. Nothing
// else gives exactly once: a mark before the work loses the record in a crash, a mark after it doubles the effect.
//
//	in, err := dedup.Open(ctx, pool, dedup.Config{})
//	// …
//	rt, err := in.Route(ctx, dedup.RouteConfig{Group: "billing", Name: "post-order-to-ledger"})
//	// …
//	rt.Run(ctx, records, dedup.Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
//		_, err := tx.Exec(ctx, "update accounts set …")
//		return err
//	}))
//
// # Identity
//
// [Identify] finds under what a record is known, by a chain of resolvers: a header, a payload field, a CloudEvents id,
// Watermill's UUID; failing those, its coordinates (topic id, partition, offset). It is never the empty string. The same
// identity at the same coordinates is this very record again, delivered a second time; at others it is a producer's
// duplicate; with another value it is a conflict, and never skipped silently.
//
// # Groups
//
// Transactions are dear and records many, so the records that wait share one: a group. A few writers a route put
// what there is into a transaction each: one trip opens it and inserts all rows, each handler runs in turn, one trip
// commits.
//
//	take ─► open ─► handler, handler, … ─► commit ─► settle
//	  ▲      │busy       │fails: undone to the savepoint, left out     │unknown: the inbox is asked again
//	  └──────┴───────────┴─────────────────────────────────────────────┘
//
// What one record does is never another's fault: one that fails is undone to the last savepoint (there is one every 16
// records), what ran since runs again without it, and its row is taken back before COMMIT. So a handler may run more
// than once before its effects stand once. The verdict table is in verdict.go.
//
// Invariants:
//
//   - A row without its effect, or an effect without its row, is never committed.
//   - A record is settled only after COMMIT was answered, or after the inbox answered that it had been.
//   - Records of one domain (a key, or a partition) run in order, never in two groups at once; those behind one that
//     failed are not run.
//   - Conflicts between groups, lost connections, ended deliveries and lost replies charge nobody an attempt.
//   - The transaction is the inbox's: a handler's COMMIT, ROLLBACK and the like are refused ([ErrHandlerTx]).
//
// How many records a group has follows from how fast the handlers are (pace.go). A message of more than that is shared
// out: any writer takes of it what is not behind a record that another has in hand, and messages take turns.
//
// # The offset store
//
// A route may remember offsets instead of identities ([ByOffset]): one row a partition says which are done, and each group
// updates it in COMMIT's trip instead of inserting a row a record. It does not know a record that its producer sent
// twice. offsets.go has its diagram and invariants.
//
// # Kinds
//
// How a handler's SQL gets into the transaction is the kind of its [Work]. An [Apply] executes it, record by record, as
// above. What a [Queue] queues is one pipeline with COMMIT at its end (queue.go, trip.go): nothing commits that did not go
// through as a whole, and the first result that fails names its record; it is left out, and the others are sent again.
// Texts are described and arguments encoded before anything is sent (texts.go, pipeline.go), because pgx must close the
// connection when it finds out in the middle of a batch. A [Batch] is called once for all fresh records (grouped.go);
// those that it does not name are found by halving. What says nothing about a record (a deadline, a hang, a lost
// connection in company) is nobody's failure: each runs alone next time.
//
// # Dead records
//
// [Route.Bury] commits a record's verdict before its dead letter is produced: redelivered, it is never run again, and
// its dead letter is produced again, with the reason that the row keeps ([DeadError]). Only a record of the replay topic
// takes a dead row over. A replay that is known by another identity than its dead row, which stands under the record's
// place, leaves that row as moved (moved.go).
//
// A record that takes its connection down three times, alone and while one beside it lives on, is dead as
// [ErrCrashLoop]; so is one that takes the whole process down, which [Route.Claimed] finds (turn.go says how, and why a
// record that is suspected runs alone).
//
// # Calls out
//
// A call cannot be part of a transaction, so it comes before it: [Route.Look] says which records are dealt with already,
// and [Route.Enter] guards a call as the inbox guards a handler, for it may take the process down too.
//
// # Retention
//
// A route with a Retention forgets: rows that are older are swept, page by page, one pass an interval for all processes
// together. What may still be redelivered is kept whatever its age: RouteConfig.Horizon says what that is.
package dedup
