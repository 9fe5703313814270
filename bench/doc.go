// Command bench measures Headrace against what its users would write otherwise, and against the limits, on a real Kafka
// and a real Postgres: the same topic, the same tables, the same work, taking turns in one run, each contender a process
// of its own. It prints ratios; absolute figures of a shared machine mean little.
//
// The work of a record is an inbox row and one UPDATE of an account. Every run is verified before it counts. README.md
// beside this file says how to run it and what each scenario asks.
package main
