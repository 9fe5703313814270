package child

import (
	"math"
	"slices"
	"sync"
	"time"
)

// delays collects every single one: a run has some hundred thousand at most, and a histogram's buckets would round the
// tail that is looked for.
type delays struct {
	mu    sync.Mutex
	nanos []int64
}

func (d *delays) add(nanos int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nanos = append(d.nanos, nanos)
}

// latencies are nil if there are none.
func (d *delays) latencies() *Latencies {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.nanos) == 0 {
		return nil
	}
	slices.Sort(d.nanos)
	at := func(p float64) float64 { return float64(percentile(d.nanos, p)) / float64(time.Millisecond) }
	return &Latencies{Records: len(d.nanos), P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

// percentile is the smallest value that a share p of all values do not exceed. There is at least one value.
func percentile(sorted []int64, p float64) int64 {
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
