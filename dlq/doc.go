// Package dlq writes and reads dead letters: records that a route could not handle, kept whole in a topic of their own.
//
// # Writing
//
//	w, err := dlq.NewWriter(dlq.WriterConfig{Client: client, Group: "billing"})
//	…
//	err = w.Write(ctx, dlq.Letter{Record: r, Reason: dlq.Permanent, Err: err, Route: "post-order-to-ledger"})
//
// Write returns nil when all in-sync replicas have the letter; only then may the record be settled. Every other end is
// an error that says fault.Unavailable: the record is held and the letter written again, so there may be two of it, with
// the same coordinates, and never none.
//
// # A letter is the record and an envelope
//
// Key, value and headers are the record's, byte for byte: nil stays nil, names repeat, order is kept. The envelope is
// appended, and the last header counts it:
//
//	trace-id: 4bf9…                      the record's own headers
//	headrace-route: mine                 the record's own, although it looks like ours
//	headrace-topic: orders          ┐
//	headrace-partition: 3           │    18 of ours
//	…                               ┘
//	headrace-dlq: 18
//
// So what is ours is known by its position and never by its name. Decode takes off exactly what Append put on, and a
// producer cannot write an envelope that anybody believes.
//
// The letter goes to the partition with the number of its record's, if the topic has that many, and carries the time at
// which it was written: with the record's own, retention would delete the copy of an old record within minutes.
//
// # Passes
//
// A letter that is replayed and dies again is the same record with a new envelope: Origin, Timestamp and FirstFailed stay
// those of the first, everything else is of the latest, Replays counts. Nothing is ever added to what is there, so a
// letter has the same size after fifty passes.
//
// # Before the first record
//
// Check asks the cluster whether the dead letter topic exists, has room for the largest record with its envelope, is not
// compacted and is as durable as its source; it creates the topic on request.
package dlq
