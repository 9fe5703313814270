package load

import (
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/test/attack/audit"
)

// Plain makes n orders that nothing is wrong with, each with an id of its own.
func Plain(rng *rand.Rand, topic string, n int) []*kgo.Record {
	g := grammar{rng: rng, topic: topic}
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = g.order("", 0, audit.Effect)
		records[i].Headers = []kgo.RecordHeader{
			{Key: audit.FateHeader, Value: []byte(audit.Effect)}, {Key: "ce_id", Value: []byte(g.uuid())},
		}
	}
	return records
}
