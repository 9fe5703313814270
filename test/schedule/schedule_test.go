package schedule

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/kafka"
)

// What a route is, what it remembers by, and what it keeps in order.
const (
	applies = "apply"
	calls   = "call"
	queues  = "queue"
	batches = "batch"

	byID     = "inbox"
	byOffset = "offsets"

	byKey       = "key"
	byPartition = "partition"
	unordered   = "none"
)

var stores = map[string]dedup.Store{byID: dedup.ByID, byOffset: dedup.ByOffset}

var orders = map[string]kafka.Order{byKey: kafka.ByKey, byPartition: kafka.ByPartition, unordered: kafka.Unordered}

// schedule is everything that happens.
type schedule struct {
	Kind       string `json:"kind"`
	Store      string `json:"store"`
	Order      string `json:"order"`
	Partitions int    `json:"partitions"`
	MaxBatch   int    `json:"max_batch"`
	Lanes      int    `json:"lanes"`
	Writers    int    `json:"writers"`
	Records    []rec  `json:"records"`
	// Late is how many of the last records are produced while members run, each life's share at its start.
	Late  int    `json:"late,omitempty"`
	Lives []life `json:"lives,omitempty"` // when all are over, one without events does what is left
}

func (s schedule) String() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// rec is a record of the topic.
type rec struct {
	// ID is by what the inbox knows it. Records of one ID are a producer's duplicates, if their bytes are the same; to the
	// offset store they are records as any others. 0 is a record without one.
	ID int `json:"id,omitempty"`
	// Key is what it is partitioned by; records of a negative one have none, and go to partition -Key-1.
	Key int `json:"key"`
	// Do is what becomes of it, see fates; K is how many attempts of each delivery fail first; Pad makes other bytes of it.
	Do  string `json:"do"`
	K   int    `json:"k,omitempty"`
	Pad int    `json:"pad,omitempty"`
	// Tx is 0 for a record outside of any transaction, 1 for one of a transaction that is committed, 2 for one that is
	// aborted, and that nobody may see. Neighbours of one kind share a transaction.
	Tx int `json:"tx,omitempty"`
}

const (
	committedTx = 1
	abortedTx   = 2
)

// body is what the value says.
type body struct {
	Do  string `json:"do"`
	K   int    `json:"k,omitempty"`
	Pad int    `json:"pad,omitempty"`
}

func (r rec) value() []byte {
	if r.Do == garbage {
		return []byte("{" + strconv.Itoa(r.Pad))
	}
	text, err := json.Marshal(body{r.Do, r.K, r.Pad})
	if err != nil {
		panic(err)
	}
	return text
}

func (r rec) partition(n int) int32 {
	if r.Key < 0 {
		return int32((-r.Key - 1) % n)
	}
	return int32(r.Key % n)
}

func (r rec) key() []byte {
	if r.Key < 0 {
		return nil
	}
	return []byte("key-" + strconv.Itoa(r.Key))
}

func (r rec) id() string {
	if r.ID == 0 {
		return ""
	}
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", r.ID)
}

// life is one member, from its start to its end: the first of its events that ends it, or, if none does, the end of the
// work.
type life struct {
	// Overlap starts the next life at once, and not at the end of this one.
	Overlap bool    `json:"overlap,omitempty"`
	Events  []event `json:"events,omitempty"`
}

// event is what happens to a member at the N-th of something.
type event struct {
	On string `json:"on"`
	N  int    `json:"n"`
	Do string `json:"do"`
}

// What is counted on a member's connections, and in its handlers.
const (
	onQuery     = "query"         // before a request is sent to Postgres
	onAnswer    = "answer"        // in place of an answer of it
	onCommit    = "commit"        // before a COMMIT is sent
	onSent      = "commit sent"   // when a COMMIT is sent, which does not arrive; the member cannot know
	onCommitted = "committed"     // in place of the reply to one
	onRequest   = "request"       // before a request is sent to Kafka
	onOffsets   = "offsets"       // before offsets are committed
	onOffsetsOK = "offsets acked" // in place of the reply to that
	onProduce   = "produce"       // before a dead letter is sent
	onProduced  = "produced"      // in place of the reply to one
	onFetched   = "fetched"       // in place of fetched records
	onHandle    = "handle"        // in a handler
)

// What an event does.
const (
	crash   = "crash"   // everything that leaves the process is cut, for good
	isolate = "isolate" // Kafka is cut, for good, and others get the partitions; the database stays: a zombie
	stop    = "stop"    // as a signal would
	cut     = "cut"     // this one connection
	down    = "down"    // the database is away for some time
)

func (e event) ends() bool { return e.Do == crash || e.Do == isolate || e.Do == stop }
