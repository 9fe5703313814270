package kafka

import (
	"context"
	"sync"
)

// fence lets a rebalance wait until the poll loop holds no batch in its hand.
//
// Polled records carry no generation of their group: a poll returns a batch -> the partition is revoked and assigned
// again -> the batch enters the new claim, which reads the same offsets once more. So whoever takes claims away cancels
// the poll and waits for its iteration to end first; the client has already thrown away what it had buffered.
type fence struct {
	mu      sync.Mutex
	turned  *sync.Cond
	turns   uint64
	waiting int
	cancel  context.CancelFunc
	over    bool // the loop has ended
}

func newFence() *fence {
	f := &fence{}
	f.turned = sync.NewCond(&f.mu)
	return f
}

// begin starts an iteration of the loop. Its context ends when somebody passes.
func (f *fence) begin(root context.Context) context.Context {
	ctx, cancel := context.WithCancel(root)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancel = cancel
	if f.waiting > 0 {
		cancel()
	}
	return ctx
}

// end finishes the iteration, with everything that it polled.
func (f *fence) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancel()
	f.turns++
	f.turned.Broadcast()
}

// finish says that there will be no iteration any more.
func (f *fence) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.turned.Broadcast()
}

// pass returns when the iteration that ran when it was called has ended. It must not be called by the loop.
func (f *fence) pass() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting++
	defer func() { f.waiting-- }()
	if f.cancel != nil {
		f.cancel()
	}
	for turn := f.turns; turn == f.turns && !f.over; {
		f.turned.Wait()
	}
}
