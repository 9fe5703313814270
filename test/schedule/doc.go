// Package schedule holds a property test of the whole consumer: whatever happens, in whatever order, the ledger holds.
//
// A schedule is data: the records of a topic and what becomes of each (healthy, failing in one of the ways of package
// fault, a producer's duplicate, an id that comes with other bytes, garbage), the shape of the route, and the lives of
// the members that serve it one after the other or side by side, each with the events that happen to it: killed right
// before the tenth request to the database, cut off from Kafka in place of the reply to the second commit of offsets,
// stopped in the third handler. Events are counted on the member's own connections, so that a schedule does nearly the
// same each time. It is run on franz-go's in-process broker and a real Postgres.
//
// After each schedule, and without asking the engine, the audit requires that
//
//   - every record has exactly the outcome that its schedule says: records = effected + duplicate + skipped + dead;
//   - an id (to the offset store: a record) has one effect and never an effect and a dead letter, and what is dead is
//     dead in the inbox, its letter byte for byte what was read;
//   - the effects of a key (or partition) come in the order of their records;
//   - everything is committed, and no commit of offsets, at the moment it was sent, passed a record whose outcome was
//     not durable yet.
//
// A schedule that fails is shrunk, and printed as JSON. It is run again, as often as HEADRACE_SCHEDULE_TIMES says, by
//
//	HEADRACE_SCHEDULE='{…}' go test ./test/schedule -run TestFound
//
// and what it taught becomes a named test in found_test.go. A few hundred schedules run with the other tests;
// make schedules N=10000 runs more.
package schedule
