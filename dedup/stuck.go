package dedup

import (
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// Stuck is a handler that has ignored its context for longer than HardGrace and has not returned since. Its record was
// taken away from it and goes on; its goroutine cannot be ended.
type Stuck struct {
	Route     string
	Topic     string
	Partition int32
	Offset    int64
	// Since is when the attempt began.
	Since time.Time
}

// stuckHandlers are those of all routes, by the writer that each has taken along.
type stuckHandlers struct {
	mu sync.Mutex
	of map[*writer]Stuck
}

func (s *stuckHandlers) add(w *writer, r *record.Record, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[*writer]Stuck)
	}
	s.of[w] = Stuck{Route: w.rt.cfg.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Since: since}
}

func (s *stuckHandlers) remove(w *writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, w)
}

// Stuck gives the handler that has been stuck the longest, and whether there is one. Safe for concurrent use.
func (in *Inbox) Stuck() (oldest Stuck, ok bool) {
	in.stuck.mu.Lock()
	defer in.stuck.mu.Unlock()
	for _, s := range in.stuck.of {
		if !ok || s.Since.Before(oldest.Since) {
			oldest, ok = s, true
		}
	}
	return oldest, ok
}
