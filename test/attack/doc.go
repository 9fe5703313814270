// Attack runs scenarios against the consumer: continuous load on a real three-node Kafka and a real Postgres, processes of
// members between, and faults of every kind, alone and together. After each run the ledger is counted by package audit,
// which shares no code with the engine.
//
//	make attack SEED=7 SECONDS=60 SCENARIO=mixed RUNS=3
//	go run ./test/attack -scenario consumer-kill,postgres-lost-commits
//
//	make soak MINUTES=60 PLOT=docs/soak.svg
//
// A scenario is a fault's name, the name of what is broken (consumers, brokers, database, operators, services: its
// faults, one at a time), mixed (all five side by side), each (every fault alone, in turn), killers (a record a topic that ends its process, and
// one that never returns), stock (the members under watermill-kafka's Subscriber), pgbouncer (in transaction mode between the
// members and the database; PGBOUNCER names it), or calm. It prints a line of JSON a run to standard output, and
// what it does to standard error. The exit code is 1 if a run had violations: its logs are kept, and its seed draws the same
// records and the same faults again. How they meet in time is the machine's.
//
// Of a SIGKILL of a member, of a leader or of Postgres the line says how long it took until there were effects again. So that
// each is recovered from before the next, have them apart:
//
//	go run ./test/attack -scenario consumer-kill,broker-kill-leader,postgres-kill -seconds 120 -apart 20s
//
// A soak is steady load at half of what two members can do, with a fault and a rebalance a minute and the inbox swept all the
// time. It writes a plot of what must not grow, and says of each series whether it did. What it cannot vouch for is a violation,
// too: of less than ten minutes it can say nothing. Beside the logs are its samples, and profiles of the members' heaps and
// goroutines at a third and at the end:
//
//	go tool pprof -base LOGS/member-0-third-heap.pprof LOGS/member-0-end-heap.pprof
package main
