package outbox

import (
	"fmt"
	"sync"
)

// wave is what was sent together: it gives each topic's result with the last answer. It is safe for concurrent use.
type wave struct {
	results chan<- result
	over    chan struct{} // closed when all topics have theirs

	mu   sync.Mutex
	open map[string]*unanswered
}

type unanswered struct {
	result
	left int
}

func newWave(events []*event, results chan<- result) *wave {
	w := &wave{results: results, over: make(chan struct{}), open: map[string]*unanswered{}}
	for _, e := range events {
		t := w.open[e.topic]
		if t == nil {
			t = &unanswered{result: result{topic: e.topic}}
			w.open[e.topic] = t
		}
		t.sent++
		t.left++
	}
	return w
}

// answered takes the answer for e.
func (w *wave) answered(e *event, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.open[e.topic]
	if t == nil { // it was ended
		return
	}
	if err == nil {
		t.confirmed = append(t.confirmed, e)
	} else if t.failed == nil || e.id < t.failed.id { // it is what is sent next
		t.failed, t.err = e, fmt.Errorf("event %d: %w", e.id, err)
	}
	if t.left--; t.left > 0 {
		return
	}
	w.results <- t.result
	if delete(w.open, e.topic); len(w.open) == 0 {
		close(w.over)
	}
}

// end gives the results of all that are not answered.
func (w *wave) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.open {
		if t.err == nil {
			t.err = errUnanswered
		}
		w.results <- t.result
	}
	clear(w.open)
}
