package dedup

import (
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// Stuck is a handler, or a call that Enter let in, that has ignored its context for longer than HardGrace and has not
// returned since. Its record goes on without it; its goroutine cannot be ended.
type Stuck struct {
	Route     string
	Topic     string
	Partition int32
	Offset    int64
	// Since is when the attempt began.
	Since time.Time
}

// stuckRuns are those of all routes, each by what waits for its return: the writer that a handler has taken along, or a
// call's visit.
type stuckRuns struct {
	mu sync.Mutex
	of map[any]Stuck
}

func (s *stuckRuns) add(by any, rt *Route, r *record.Record, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[any]Stuck)
	}
	s.of[by] = Stuck{Route: rt.cfg.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Since: since}
}

func (s *stuckRuns) remove(by any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, by)
}

// has reports whether a run of r is.
func (s *stuckRuns) has(rt *Route, r *record.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.of {
		if of.Route == rt.cfg.Name && of.Topic == r.Topic && of.Partition == r.Partition && of.Offset == r.Offset {
			return true
		}
	}
	return false
}

// Stuck gives what has been stuck the longest, and whether there is one. Safe for concurrent use.
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
