// Package record is the vocabulary that every layer of Headrace shares: the [Record] that travels, the [Outcome] it
// ends with, and the [Hooks] through which the engine tells what it does. There is nothing of Kafka in it.
//
// # One message, one or many records
//
// The unit that passes Watermill's Router is a message.Message that carries the records of one partition that were
// waiting, in offset order: one at low load, many under load. [Records] gives them. Each record settles by itself; the
// verdict stands on the record (Settled, Err), never in the error that a handler returned, which is a summary for logs.
//
// # A record's states
//
//		in line ─► running ─► settled
//		   ▲         │  ▲
//		   │         ▼  │ Resume
//		   └──────  waiting            Wait: a back-off or a hold; occupies nothing
//		  GiveBack
//
//	  - Settle: the outcome is durable. The first call wins; only then may the offset move.
//	  - GiveBack: the delivery ends without an outcome. The record is delivered again, to this member or another.
//	  - Between Wait and Resume a record blocks those that must stay behind it (its domain), and nobody else.
//
// # Two signals
//
// A record is delivered under a claim, its partition's ownership. When the claim ends, first Soft closes: begin nothing
// more, end every wait. When the drain grace is over the message's context ends, its cause one of [ErrRevoked],
// [ErrLost] and [ErrStopping].
package record
