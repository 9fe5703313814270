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
//	headrace-partition: 3           │    19 of ours, 18 to 21
//	…                               ┘
//	headrace-dlq: 19
//
// So what is ours is known by its position and never by its name. Decode takes off exactly what Append put on, and a
// producer cannot write an envelope that anybody believes.
//
// The letter goes to the partition with the number of its record's, if the topic has that many, and carries the time at
// which it was written: with the record's own, retention would delete the copy of an old record within minutes.
//
// # Passes
//
// A record that is replayed and dies again is the same record with a new envelope: Origin, Timestamp and FirstFailed stay
// those of the first, everything else is of the latest, Replays counts. Nothing is ever added to what is there, so a
// letter has the same size after fifty passes.
//
// # Reading
//
//	_, err := dlq.Read(ctx, dlq.ReadConfig{Client: client, Topic: "orders.dlq", Filter: filter}, func(e *dlq.Entry) error {
//		fmt.Println(e.Place(), e.Envelope.Reason, dlq.Preview(e.Value, 80))
//		return nil
//	})
//
// Read goes from the topic's beginning to where it ended when it was called. It gives each record once, by its latest
// letter, whatever is in the topic: letters of stock Watermill, Spring and Kafka Connect are read as far as their headers
// go, and what is no letter at all is an Entry too, of FormatUnknown.
//
// A Filter says which letters are meant, in the same way for every use. Whatever is shown goes through Escape, Preview or
// HeaderValue first: a payload can hold what a terminal obeys, and headers hold secrets. Outcomes asks the inbox what has
// become of a page of letters since.
//
// # Replaying
//
//	summary, err := dlq.Replay(ctx, dlq.ReplayConfig{Read: read, DryRun: true})
//
// Replay sends letters to the replay topic of their source and group, "orders.billing.replay", which the routes of that
// group read beside their source; no other group sees them. It keeps no state of its own. Killed half way, it is run
// again; run twice, each record still has its effect once, because a replay keeps the record's identity and the inbox
// knows it:
//
//	letter ─► replay topic ─► the route that it names ─► effected, and the inbox row is no longer dead
//	   ▲                                │
//	   └────── dead again, Replays + 1 ─┘
//
// A record that names no identity is known by its place: where it was first read, or, where another system's letter does
// not say that, where this letter stands.
//
// # Before the first record
//
// Check asks the cluster whether the dead letter topic exists, has room for the largest record with its envelope, is not
// compacted and is as durable as its source; it creates the topic on request. What a replay topic must be like follows
// from its dead letter topics: NeedsOf.
package dlq
