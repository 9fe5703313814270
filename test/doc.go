// Package e2e holds the end-to-end and failure tests: the assembled consumer on a real Apache Kafka and a real Postgres,
// broken for real, and on franz-go's in-process broker where a fault can only be made there.
//
// Every test that breaks something ends with one invariant,
//
//	records = effected + duplicate + skipped + dead + parked
//
// counted by an audit that shares no code with the engine (ledger_test.go): it reads the topics with a plain client and
// the tables with SQL, works out for every record by its coordinates what became of it, and complains about a record
// with no outcome or two, an id with two effects, effects of a key out of order, a dead letter that differs from its
// source, and offsets that are not committed to the end. It follows a replay to the record that died, and compares the
// book of the payment service, which outlives the members, with the effects.
//
// Where the scenarios stand:
//
//	happy_test.go       nothing breaks: every kind of record, two routes
//	crash_test.go       SIGKILL and SIGSTOP of the consumer's process
//	rebalance_test.go   members come and go under load
//	database_test.go    Postgres is killed, refuses, forgets to answer COMMIT
//	broker_test.go      brokers are killed and restarted
//	deadletter_test.go  the dead letter topic cannot be written
//	fairness_test.go    keys and partitions that are well, beside those that are not
//	stop_test.go        a graceful stop under load
//	stock_test.go       the faults of a stock Watermill and Sarama stack, a test each, named for the symptom
//	calls_test.go       the service that is called is away, hangs, answers oddly
//	calls_crash_test.go kills and rebalances around calls that are out or held
//	replay_test.go      dead letters are replayed, by the command as it is built
//	walk_test.go        the demo that stays up, used as it says
//	stock_transport_test.go the same stack under watermill-kafka's Subscriber
//	cases_test.go       further faults that users of other systems reported
//
// docs/cases.md says which test holds which case. Without Java the tests on the real broker are skipped; see package
// kafkatest.
package e2e
