package claim

import (
	"slices"
	"time"

	"github.com/headrace/headrace/record"
)

// Order is what of a partition stays in order.
type Order uint8

// The orders.
const (
	ByKey Order = iota
	ByPartition
	Unordered
)

const (
	// handedOut is of which part of a claim's memory the messages of all lanes are.
	handedOut = 4

	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// LineConfig is how a subscription wants its records.
type LineConfig struct {
	Name     string
	Order    Order
	MaxBatch int
	Lanes    int
	// Replay marks the records as read from a replay topic.
	Replay bool
	// Patience is how long an attempt may run before Overdue tells of it.
	Patience time.Duration
}

// Line is one subscription's scheduler in a claim, and the owner of the records that it hands out.
type Line struct {
	claim *Claim
	cfg   LineConfig
	wake  chan struct{} // one token: something may be taken

	// All below are guarded by the claim's lock.
	lanes   int // free ones
	fresh   queue
	again   queue              // given back, of no domain
	freed   []*domain          // idle ones that have blocked seats, in the order in which they became idle
	domains map[string]*domain // busy or blocked ones
	spare   *domain            // one to use again
	batches map[*Batch]struct{}
	resumed int // seats that run again
	resumes []*resume
}

var _ record.Owner = (*Line)(nil)

func newLine(c *Claim, cfg LineConfig) *Line {
	return &Line{
		claim: c, cfg: cfg, lanes: cfg.Lanes, wake: make(chan struct{}, 1),
		domains: make(map[string]*domain), batches: make(map[*Batch]struct{}),
	}
}

// Name is the subscription's.
func (l *Line) Name() string { return l.cfg.Name }

// Wake makes Next look again, for example because a gate has opened. It never blocks.
func (l *Line) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Next blocks until there is a lane, a record of an idle domain, and shut reports false. It gives nil when the claim
// is ending or stop is closed. Only one goroutine may call it at a time.
func (l *Line) Next(stop <-chan struct{}, shut func() bool) *Batch {
	for {
		// shut is asked outside the lock: a gate calls Wake under a lock of its own.
		if !shut() {
			if b := l.take(); b != nil {
				return b
			}
		}
		select {
		case <-l.wake:
		case <-stop:
			return nil
		case <-l.claim.soft:
			return nil
		}
	}
}

func (l *Line) enqueue(entries []*entry) {
	if len(entries) == 0 {
		return
	}
	seats := make([]seat, len(entries))
	for i, e := range entries {
		seats[i].entry, seats[i].offset = e, e.rec.Offset
		l.fresh.push(&seats[i])
	}
	l.Wake()
}

// take makes a batch of what may run now, nil if there is nothing or no lane.
//
// Each seat is looked at once on its way through fresh and once when its domain becomes free, whatever the length of
// the line: a line of 10,000 records of one busy key costs nothing to look at again.
func (l *Line) take() *Batch {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if l.claim.softened || l.lanes == 0 {
		return nil
	}
	b := &Batch{line: l}
	l.takeAgain(b)
	l.takeFreed(b)
	l.takeFresh(b)
	if len(b.seats) == 0 {
		return nil
	}
	if !slices.IsSortedFunc(b.seats, byOffset) {
		slices.SortFunc(b.seats, byOffset)
	}
	l.begin(b)
	return b
}

// room says whether b may have another record. What is handed out costs three times the memory of what is in line, so the
// messages of all lanes together carry no more than a part of the window.
func (l *Line) room(b *Batch) bool {
	n := len(b.seats)
	return n == 0 || n < l.cfg.MaxBatch && b.bytes < l.claim.limit.Bytes/int64(handedOut*l.cfg.Lanes)
}

func (b *Batch) seat(s *seat) {
	b.seats = append(b.seats, s)
	b.bytes += s.entry.bytes
}

func (l *Line) takeAgain(b *Batch) {
	for l.room(b) && l.again.first != nil {
		b.seat(l.again.pop())
	}
}

func (l *Line) takeFreed(b *Batch) {
	for l.room(b) && len(l.freed) > 0 {
		d := l.freed[0]
		l.freed[0] = nil
		l.freed = l.freed[1:]
		d.freed = false
		for l.room(b) && d.blocked.first != nil {
			b.seat(d.enter(d.blocked.pop(), b))
		}
	}
}

func (l *Line) takeFresh(b *Batch) {
	for l.room(b) && l.fresh.first != nil {
		s := l.fresh.pop()
		d := l.domainOf(s)
		switch {
		case d == nil:
			b.seat(s)
		case d.mayEnter(b):
			b.seat(d.enter(s, b))
		default:
			d.blocked.push(s)
		}
	}
}

// begin hands the seats of b out: they run.
func (l *Line) begin(b *Batch) {
	b.build()
	l.lanes--
	l.batches[b] = struct{}{}
	l.claim.inFlight += len(b.seats)
	b.open, b.running = len(b.seats), len(b.seats)
}

// drop forgets what is in line, because the claim ends.
func (l *Line) drop() {
	l.fresh, l.again, l.freed = queue{}, queue{}, nil
	for _, d := range l.domains {
		d.blocked, d.freed = queue{}, false
	}
}

// backoff is the wait before a record that was given back n times comes again.
func backoff(n int) time.Duration {
	return min(firstBackoff<<min(n-1, 10), lastBackoff)
}
