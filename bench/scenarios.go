package main

import (
	"context"
	"slices"
	"strings"

	"github.com/headrace/headrace/bench/internal/load"
)

// scenario is a question, in a file of its own.
type scenario struct {
	name string
	asks string
	run  func(ctx context.Context, b *bench) error
}

var scenarios = []scenario{
	{"throughput", "an inbox row and one UPDATE a record, everybody, 1 and 8 partitions", throughput},
	{"shapes", "Headrace's other shapes: order by partition, one record a transaction, under watermill-kafka", shapes},
	{"scaling", "1 to 16 partitions", scaling},
	{"lanes", "messages of a partition side by side", lanes},
	{"groups", "the most records of a transaction", groups},
	{"calls", "an HTTP call of 5 ms before the same work", calls},
	{"sleep", "Parallel Consumer's published scenario: handlers that sleep up to 5 ms, 1 partition", sleep},
	{"hot", "all records post to one account", hot},
	{"duplicates", "every fifth record is a copy of the one before, against none", duplicates},
	{"poison", "every hundredth record can never succeed, against none", poison},
	{"failing", "a fifth of the keys fails for ever, against none: when the others are done", failingKeys},
	{"failing-few", "the same of 100 keys, with hundreds of records each", failingFewKeys},
	{"stuck", "one key's handlers hang, against none: when the others are done", stuckKey},
	{"latency", "from due to committed, an open loop at 10, 50 and 90 % of the top rate, and at 20 records a second", latency},
	{"outbox", "events from their transactions into Kafka at 3 ms a produce, against watermill-sql; and routes with an event a record, against none", outboxes},
	{"parking", "records into parking, and out of it through the whole stack, alone and beside a million that wait (BENCH_BACKLOG)", parkings},
	{"inbox-size", "rate, and latency at half of it, of an inbox that is empty and of one that has a million rows (BENCH_BACKLOG), by kind of id", inboxSize},
	{"memory", "a backlog at full speed, and behind a slow handler", memory},
}

func isScenario(name string) bool {
	return slices.ContainsFunc(scenarios, func(s scenario) bool { return s.name == name })
}

func scenarioNames() string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return strings.Join(names, ", ")
}

// shape is the ordinary topic.
func (b *bench) shape(partitions int32) load.Shape {
	return load.Shape{Partitions: partitions, Records: b.records, Keys: b.keys, IDs: b.ids}
}

// sizes are the numbers of partitions that most questions are asked at.
var sizes = []int32{1, 8}
