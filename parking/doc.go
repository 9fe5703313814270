// Package parking keeps records that are to be tried again much later, out of the way of their partition: in Postgres, so
// that they outlive every process, and in the order of their keys.
//
//	store, err := parking.Open(ctx, pool, "billing", "charge-order", parking.Policy{})
//	// …
//	err = store.Park(ctx, []parking.Entry{{Record: r, Key: parking.KeyID(r, true), Failed: &failure}})
//	// the record may be settled as parked: its offset may move
//
// # A line
//
// The parked records of one key are a line, in the order of their offsets. Its head is tried when it is due; while the
// line is there, later records of the key join it instead of overtaking. Records without a key, and those of a route that
// keeps no order, have lines of their own.
//
//	headrace.parked_keys      a row a line: when it is due, whose lease it has, its round
//	headrace.parked_records   a row a record: the whole of it, as it was delivered
//
//	           Park                    Claim                  Finish: all settled
//	(failed) ───────► due later ──────────────────► leased ─────────────────────────► gone
//	                   ▲     ▲                      │ │  └─ some are left: due now ─► Claim
//	                   │     └── failed again ──────┘ │
//	                   └─ given back, lease over ─────┘
//
// A head that fails waits twice as long as before, up to Policy.Cap, and Policy.Rounds times; then whoever runs it makes
// it dead, and those behind it go on.
//
// # Many processes
//
// Any number of them claim lines, run what is in them through the route's inbox, and finish the lines. A claim takes what
// is due and in nobody's hands, under a lease with a token, and every later change of a line says whose token it must
// have: a process that was paused, and whose lease is over, changes nothing any more. What it has already done is safe all
// the same, because the inbox knows the record; a line may be claimed twice, and its effects happen once.
//
// # Invariants
//
//   - A record is in its line, in one transaction with the line, before anybody settles it as parked.
//   - A record whose line is gone is in no row: whoever appends to a line locks it, and whoever finishes one locks it first
//     and looks in a later statement what is left.
//   - A record leaves after its outcome is durable, never with it: a crash in between delivers it again, and the inbox
//     knows it. So what counts as parked is what has a row here and none in the inbox.
//   - Only the database's clock counts. Intervals travel.
//   - A process that dies with a line leaves a start behind. From the first on the line's head runs alone, and after
//     three deaths alone it is convicted (Line.CrashLoop). A lease that runs out under a living process is no death: whoever
//     finds out takes its start back.
package parking
