// Package audit counts the ledger of a run, from SQL and from the topics, and shares no code with the engine: what is
// promised to whoever reads the tables and topics is written down here a second time.
//
//	count, err := audit.Run(ctx, audit.Ledger{Brokers: brokers, DSN: dsn, Group: "g", Routes: routes})
//
// It expects of a run that nothing runs any more. For each route it looks for, record by record:
//
//	no outcome, or two                        an effect, a letter, a row that contradict each other
//	an id with two effects                    effects of a key that are not in the order of their offsets
//	a letter that is not its record's copy    an outcome other than the producer's fate header says
//	books that do not balance                 events of the outbox that nobody wrote, or that are missing
//	offsets that are not committed to the end transactions that are open in Kafka or in Postgres
//	a parked record that is not its source's  a secret in a letter's envelope
//	copy, whenever it was seen
//
// [Logs] looks at what the processes have said. The handlers write their effects to the tables of [Schema].
package audit

// Schema is where handlers write: a row an effect, with the record's timestamp and when it was written, and what it adds
// to an account. It forbids nothing: what is there twice
// must be seen, not prevented.
const Schema = `
create table effects (seq bigint generated always as identity, route text, topic text, part int, off bigint, id bytea,
	key bytea, account int, amount bigint, made timestamptz, at timestamptz default clock_timestamp());
create index on effects (seq);
create table balances (route text, account int, amount bigint, primary key (route, account));`

// FateHeader names the header that says what must become of a record: one of the fates. Without it anything may.
const FateHeader = "attack-fate"

const (
	// Effect is the fate of a record that nothing is wrong with, whatever breaks around it.
	Effect = "effect"
	// Dead is that of a record which cannot succeed.
	Dead = "dead"
	// Skip is that of one which its handler skips.
	Skip = "skip"
)

// EventID is the id that a route gives to the event that it publishes for a record.
const EventID = "event-%d-%d" // partition, offset

// Ledger is what to count. Brokers and DSN are the auditor's own ways, past whatever the run was attacked with.
type Ledger struct {
	Brokers []string
	DSN     string
	Group   string
	Routes  []Route
	// Earlier are letters of topics that were deleted during the run, with the dead letter topic's name as Topic.
	Earlier []Letter
	// Waited are records that were parked at some time during the run.
	Waited []Parked
	// Secrets are looked for in the envelopes of letters.
	Secrets Secrets
}

// Route is one of the group.
type Route struct {
	Name, Topic string
	// ByOffset says that the route remembers by offsets, and that its inbox has the dead alone.
	ByOffset bool
	// Fragile says that records of its topic were taken away during the run.
	Fragile bool
	// Floods is how many records of a partition may be dead with which nothing was wrong: a deploy failed everything, until
	// the flood guard held the partition.
	Floods int
	// Publishes names the topic that the route publishes an event to for each effect, "" for none.
	Publishes string
}

// Count is the ledger: every record once for each route that reads its topic.
type Count struct {
	Produced  int `json:"produced"`
	Effected  int `json:"effected"`
	Duplicate int `json:"duplicate"`
	Skipped   int `json:"skipped"`
	Dead      int `json:"dead"`
	Parked    int `json:"parked"`
	// Gone are the records that have an effect and stand in no topic any more.
	Gone int `json:"gone,omitempty"`
	// Reasons are why records died.
	Reasons    map[string]int `json:"reasons"`
	Violations []string       `json:"violations"`
}
