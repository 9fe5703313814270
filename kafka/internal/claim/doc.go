// Package claim is the ownership of one partition between its assignment and its end, and the scheduler of the records
// that are read meanwhile. There is no network in it: [Claim.Add] is told what was fetched, [Line.Next] hands out what
// may run, and [Claim.Watermark] says how far the offset may move.
//
// # Lines
//
// Each subscription of the topic has a [Line] in the claim and gets every record; a record is done when every line has
// settled it. A line hands out batches of records in offset order. Its rules:
//
//   - Records of one domain (a key, or the whole partition) run one batch after the other. Those of a busy domain stay
//     behind it, blocked, and cost nothing until it is free; the rest of the line goes on.
//   - A batch occupies a lane while one of its records runs for the first time. A batch of which only others are left
//     occupies none.
//   - Records that waited run again in room of their own, for as many as all lanes carry, first come first served: however
//     many fail, what is new goes on beside them, and they beside it.
//   - A record that is given back keeps its place and its domain while it backs off, 100 ms at first, 5 s at most. It
//     comes again as a new Record, rebuilt from what was fetched: whoever still holds the old one can settle nothing.
//
// # A seat's states
//
//	           Add                take              Settle
//	(fetched) ────► in line ──────────► running ──────────────► settled
//	                   ▲  ▲              │  ▲  │                   ▲
//	                   │  └── back-off ◄─┘  │  └► waiting ─────────┘
//	                   │     (GiveBack)     └───── Resume
//	                   └── Return: taken, but nobody was there to take it over
//
// # The end
//
//	open ──EndSoft──► soft ──EndHard──► hard ──Close──► closed
//	                   │ nothing begins   │ contexts end   │ nothing moves
//	                   └───── Drained: nothing is in flight any more
//
// # Invariants
//
//   - The watermark passes a record only when every line has settled it and all that were delivered before it.
//   - The watermark never moves backwards, and not at all once the claim is closed.
//   - Every entry from the watermark on keeps its bytes, so that a line that is added later misses none.
package claim
