package downstream

import (
	"container/list"
	"context"
	"sync"
)

// bulkhead counts places. Who waits for one is served in the order of arrival; one that leaves takes nobody's place.
type bulkhead struct {
	mu    sync.Mutex
	free  int
	queue list.List // of chan struct{}
}

// try takes a place if one is free.
func (b *bulkhead) try() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take()
}

// take: callers hold mu. While somebody waits none is free: leave gives it on.
func (b *bulkhead) take() bool {
	if b.free == 0 {
		return false
	}
	b.free--
	return true
}

// wait takes a place; false when soft closes or ctx ends before there is one.
func (b *bulkhead) wait(ctx context.Context, soft <-chan struct{}) bool {
	b.mu.Lock()
	if b.take() {
		b.mu.Unlock()
		return true
	}
	ready := make(chan struct{})
	place := b.queue.PushBack(ready)
	b.mu.Unlock()
	select {
	case <-ready:
		return true
	case <-soft:
	case <-ctx.Done():
	}
	return b.giveUp(place, ready)
}

// giveUp leaves the queue. A place that was given in the same moment is passed on.
func (b *bulkhead) giveUp(place *list.Element, ready chan struct{}) bool {
	b.mu.Lock()
	select {
	case <-ready:
		b.mu.Unlock()
		b.leave()
		return false
	default:
	}
	b.queue.Remove(place)
	b.mu.Unlock()
	return false
}

// leave gives a place back, to the first that waits.
func (b *bulkhead) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first := b.queue.Front(); first != nil {
		close(b.queue.Remove(first).(chan struct{}))
		return
	}
	b.free++
}
