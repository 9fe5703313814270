// Package stock runs Headrace's stack under watermill-kafka's own Subscriber, for whoever has one. A [Subscriber] takes
// its place in a Watermill Router, and [Transport] that of kafka.Source in a consumer. It is the only package that speaks
// to Sarama; [Rule] says what Sarama's errors mean.
//
// The effects are exactly once here too, because the inbox makes them so, and nothing is lost: the offset moves only over
// what every route has settled.
//
// # How it stands between the two
//
// watermill-kafka lets a tracer wrap what Sarama calls. Through that seam each partition comes to a claim of ours first,
// and watermill-kafka sees a session and a claim that end when ours do:
//
//	Sarama ─► claim ─► watermill-kafka ─► its message ─► claim ─► messages of the routes ─► the stack ─► handler
//	             offset ◄── mark ◄── Ack, once every route has settled the record ◄──┘
//
// So what is measured of the stock Subscriber alone does not happen:
//
//   - Its messages' contexts outlive the session. Here a context ends, with record.ErrRevoked, record.ErrLost or
//     record.ErrStopping as its cause, when the grace of its claim is over.
//   - It drops an Ack that comes while the group rebalances, and what finishes while it closes. Here both are marked and
//     committed if they come within the grace.
//   - Its Nack loops on a partition that has gone, beside the new owner. Here a record is given back to the claim and
//     comes again from there, after 100 ms at first and 5 s at last, for as long as the claim lives.
//   - A record that cannot be unmarshalled makes it leave and join its group for ever. Here everything is data: a nil key
//     or value, headers with the same name, bytes that nobody can decode.
//   - Two of it on one topic share the partitions between them. Here two routes on one topic share one member: each gets
//     every record, and the offset moves when both have settled it.
//
// # What is weaker than kafka.Source
//
//   - One record of a partition at a time. There are no batches, no lanes and no order by key: a record that backs off or
//     is held blocks its partition, and the inbox groups only what different partitions have in hand: 1,500 to 2,000 records
//     a second where a Source had 7,400 (8 partitions, one insert a record, two cores that had other work too).
//   - Eager rebalances: a member that joins or leaves takes every partition from every member until all have drained
//     (TestAckDuringARebalanceIsNotLost: two are revoked, and one would do). Config.Sarama refuses cooperative ones.
//   - A member, a client and its connections for each topic, the replay topic included, all in one group
//     (TestEachTopicIsAMemberOfItsOwnInOneGroup): each that joins at start rebalances those before it, and what one
//     topic's handlers take to drain, the others wait.
//   - A stop while a join is pending can neither commit nor leave: Sarama waits for the others to drain. Stop returns after
//     CommitReserve and two seconds and what it has not committed is delivered again, to find its inbox row
//     (TestStop/WhileAJoinIsPending).
//   - A coordinator that was silent for a session, which ends the claims, is joined again only when Sarama's own read has
//     timed out, RebalanceTimeout + 10 s, or it answers.
//   - A log that was cut, for example by an unclean election, is found where a session begins and not while one lasts, and
//     only for as long as it ends before what was done: Sarama tells no leader epochs (see kafka.SourceConfig.Begin).
//   - An offset that is not in the log, a log that was cut, or a topic that was made anew, holds all of the topic's partitions of this member,
//     unless kafka.SourceConfig.OnOffsetLoss lets it go on.
//   - Sarama fetches and commits by a topic's name. So before a record is begun the partition's leader is asked for the
//     topic's id, once for what Sarama has buffered: a request a record where records come one by one. A leader that
//     answers nobody holds its partitions. When a topic was made anew while a session went on, the group's offset is set
//     to the start of the new one as the session ends (TestTopicMadeAnewUnderASessionIsNotReadOnAtTheOldPosition). Not
//     covered: the process is killed after an offset of the old topic was committed for the new one and before that was
//     seen, which takes up to the next fetch or five seconds (a Source with a broker of Kafka 4.1 or later commits by id);
//     a leader that is cut off from the cluster and does not know of the new topic, while Sarama fetches from another.
//   - A broker that does not answer at the first look-up of the topics for 15 s, a topic that does not exist, or a cluster
//     that gives topics no ids, ends the Subscriber with an error.
//   - Memory: Sarama buffers 256 records and up to a fetch of 1 MiB for each partition, whatever MaxInFlightBytes says.
//   - Static membership, KIP-848 and the committed offset in Stats: none.
//
// # Moving on
//
// Its balance strategy, range, is that of a kafka.Source with Balancer kafka.Eager, so members of both kinds can share a
// group, and one can be replaced by the other without a stop.
package stock
