// Command bench measures Headrace against stock Watermill on a real Kafka and a real Postgres: the same topic, the same
// database, the same work, taking turns in one run. It prints ratios; absolute figures of a shared machine mean little.
//
// The work of a record is what a careful team writes today: an inbox row and one UPDATE of an account, in one
// transaction; in the calls part after an HTTP call. Every run is verified: each account has the balance that the topic
// says, each record one inbox row, and the service that was called has seen each order.
//
//	make bench                  # everything, about twenty minutes
//	go run . -only throughput   # one part: throughput, latency, calls, poison, memory
package main
