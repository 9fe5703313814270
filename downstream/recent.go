package downstream

import (
	"container/list"
	"sync"
	"time"
)

// recent remembers values, the most recently used of them.
type recent[R any] struct {
	most int

	mu   sync.Mutex
	line list.List // of *entry[R], the one that was used last in front
	by   map[string]*list.Element
}

type entry[R any] struct {
	key   string
	value R
	at    time.Time
}

func newRecent[R any](most int) *recent[R] {
	return &recent[R]{most: most, by: map[string]*list.Element{}}
}

func (r *recent[R]) put(key string, value R) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &entry[R]{key, value, time.Now()}
	if at, ok := r.by[key]; ok {
		at.Value = e
		r.line.MoveToFront(at)
		return
	}
	r.by[key] = r.line.PushFront(e)
	if r.line.Len() > r.most {
		delete(r.by, r.line.Remove(r.line.Back()).(*entry[R]).key)
	}
}

func (r *recent[R]) get(key string) (value R, age time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.by[key]
	if !ok {
		return value, 0, false
	}
	r.line.MoveToFront(at)
	e := at.Value.(*entry[R])
	return e.value, time.Since(e.at), true
}
