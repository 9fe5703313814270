package claim

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

// BenchmarkLine takes records through a line: added, batched, settled. ns and allocations are for one record.
func BenchmarkLine(b *testing.B) {
	for _, c := range []struct {
		name     string
		order    Order
		maxBatch int
		keys     int // 0: none
	}{
		{"NoKey/1", ByKey, 1, 0},
		{"NoKey/500", ByKey, 500, 0},
		{"1000Keys/1", ByKey, 1, 1000},
		{"1000Keys/500", ByKey, 500, 1000},
		{"HotKey/500", ByKey, 500, 1},
		{"UniqueKeys/500", ByKey, 500, 1 << 30},
		{"ByPartition/500", ByPartition, 500, 1000},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkLine(b, c.order, c.maxBatch, c.keys) })
	}
}

func benchmarkLine(b *testing.B, order Order, maxBatch, keys int) {
	const fetch = 1000
	recs := make([]*kgo.Record, b.N)
	for i := range recs {
		recs[i] = raw(int64(i), "")
		if keys > 0 {
			recs[i].Key = fmt.Append(nil, i%keys)
		}
	}
	c := newTestClaim(ample)
	l := c.NewLine(LineConfig{Order: order, Lanes: 2, MaxBatch: maxBatch})
	b.ReportAllocs()
	b.ResetTimer()
	for first := 0; first < b.N; first += fetch {
		c.Add(recs[first:min(first+fetch, b.N)])
		for batch := l.take(); batch != nil; batch = l.take() {
			for _, r := range batch.Records {
				r.Settle(record.Effected)
			}
		}
	}
}

// BenchmarkLongLineOfBusyKeys looks for work in a line of 10,000 records whose keys are nearly all busy: its cost must
// not grow with the line.
func BenchmarkLongLineOfBusyKeys(b *testing.B) {
	c := newTestClaim(ample)
	l := c.NewLine(LineConfig{Lanes: 2, MaxBatch: 1})
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = "hot"
	}
	c.Add(raws(keys...))
	l.take()
	cold := raws("cold")
	b.ReportAllocs()
	for b.Loop() {
		c.Add(cold)
		settle(l.take().Records...)
	}
}
