// Package kafka is Headrace's transport: [Source] reads topics and is a Watermill message.Subscriber, [Publisher] writes
// them and loses nothing on the way, [Admin] looks at them. All are on franz-go.
//
// # Reading
//
//	source, err := kafka.NewSource(kafka.SourceConfig{
//		Client: kafka.ClientConfig{Brokers: []string{"localhost:9092"}},
//		Group:  "billing",
//	})
//	// …
//	router.AddConsumerHandler("bill", "orders", source, handler)
//
// A Source is one client and one member of its consumer group, for all topics of the process. Each subscription of a
// topic gets every record. A handler of its own accord gets messages of one; a route of the stack asks for more with
// [Source.Subscriber] and a [Subscription], and finds them with record.Records.
//
// An Ack settles a message of one, a Nack gives it back: it comes again after a back-off of 100 ms, then 200 ms, up to
// 5 s, and what must stay behind it waits. Of a message of several an Ack settles nothing, because a handler that does
// not know of records has seen nothing of them; what is left is given back and reported as left_unsettled.
//
// # A claim's life
//
// A claim is the ownership of one partition, from its assignment to its end:
//
//	assigned ──► open ── revoke, stop ──► soft ── DrainGrace is over ──► hard ── HardGrace is over ──► closed
//	              │                       │ nothing begins,             │ contexts end:               │ last commit,
//	              │                       │ every wait ends             │ ErrRevoked, ErrStopping     │ then given up
//	              │                       └──── nothing is in flight ───┴──── nothing is in flight ──►│
//	              └── lost: contexts end with ErrLost, closed at once, nothing is committed ─────────►│
//
// # Invariants
//
//   - The offset moves only over records that every subscription has settled, in order of their delivery, and never
//     backwards. Gaps (compaction, transaction markers) do not stall it.
//   - What settles before a claim closes is committed. What settles later moves nothing; the record is redelivered.
//   - A record that was polled before a revoke never enters the partition's next claim.
//   - Commits are a second apart and at a claim's end, by a goroutine of their own; no record waits for one.
//   - The poll loop never waits for a handler: a claim that is full is paused.
//   - A subscription that ends leaves its records, and they hold the offset until it comes again.
//
// # When something is wrong
//
// A partition whose fetch fails is paused, reported once by its kind and tried again, every 30 s at last; the others go
// on. An offset out of range, a topic that was created anew and a log that was cut below what somebody remembers of it
// ([SourceConfig.Begin]) are held: nothing jumps silently. The first two go on if [SourceConfig.OnOffsetLoss] says so, with a
// report of what was lost. Ready says what is held, and
// [Source.Stats] which. A record that runs for too long is reported as stuck_record; past MaxPollInterval the Source
// gives up, because a client of Kafka in Go goes on heartbeating beside a hung handler for ever: Live fails, the member
// leaves, Done is closed. A coordinator that is silent for a session ends the claims.
package kafka
