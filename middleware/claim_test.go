package middleware_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

type place uint8

const (
	inLine place = iota
	running
	rerunning
	waiting
	done // settled, or given back: this delivery moves nothing any more
)

// seat is where a record sits in its claim.
type seat struct {
	m  *delivered
	at place
}

// delivered is one message's records; its lane is free when none of them runs for the first time.
type delivered struct {
	rs      []*record.Record
	running int
}

// claim is an Owner as the Source's is, with a scheduler and without Kafka.
type claim struct {
	mu       sync.Mutex
	changed  *sync.Cond
	entries  []*record.Record // from the watermark on
	line     []*record.Record
	busy     map[string]int
	lanes    int
	maxBatch int
	resumed  int // records that run again
	room     int // for so many
	byPart   bool
	gates    *middleware.Gates
	unwatch  func()
	mark     func(next int64) // nil once the claim has ended

	soft chan struct{}
	hard context.Context
	kill context.CancelCauseFunc

	waits, maxWaits int
	outcomes        map[int64][]record.Outcome
	acked           int // bare Acks that settled something: with the stack there must be none
	givenBack       int
}

func newClaim(lanes, maxBatch int, gates *middleware.Gates) *claim {
	c := &claim{
		busy: map[string]int{}, lanes: lanes, maxBatch: maxBatch, room: lanes * maxBatch, gates: gates, mark: func(int64) {},
		soft: make(chan struct{}), outcomes: map[int64][]record.Outcome{},
	}
	c.changed = sync.NewCond(&c.mu)
	c.hard, c.kill = context.WithCancelCause(context.Background())
	if gates != nil {
		c.unwatch = gates.Watch(func() {
			c.mu.Lock()
			c.changed.Broadcast()
			c.mu.Unlock()
		})
	}
	return c
}

// bind makes r a delivery of the claim; keys are domains, no key is none.
func (c *claim) bind(r *record.Record) *record.Record {
	domain := ""
	switch {
	case c.byPart:
		domain = "p"
	case r.Key != nil:
		domain = "k" + string(r.Key)
	}
	r.Seat = &seat{}
	r.Bind(c, c.soft, domain)
	return r
}

func (c *claim) add(rs ...*record.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rs {
		c.bind(r)
		c.entries, c.line = append(c.entries, r), append(c.line, r)
	}
	c.changed.Broadcast()
}

func (c *claim) ending() bool {
	select {
	case <-c.soft:
		return true
	default:
		return false
	}
}

// next blocks for a lane and a record of an idle domain; nil when the claim ends.
func (c *claim) next() *delivered {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.ending() {
		if c.lanes > 0 && (c.gates == nil || !c.gates.Shut()) {
			if m := c.take(); m != nil {
				return m
			}
		}
		c.changed.Wait()
	}
	return nil
}

func (c *claim) take() *delivered {
	m, own, skipped, rest := &delivered{}, map[string]bool{}, map[string]bool{}, c.line[:0:0]
	for i, r := range c.line {
		if len(m.rs) == c.maxBatch {
			rest = append(rest, c.line[i:]...)
			break
		}
		d := r.Domain()
		if d != "" && (skipped[d] || c.busy[d] > 0 && !own[d]) {
			skipped[d] = true
			rest = append(rest, r)
			continue
		}
		own[d] = true
		c.busy[d]++
		*seatOf(r) = seat{m: m, at: running}
		r.Begin()
		m.rs = append(m.rs, r)
	}
	if len(m.rs) == 0 {
		return nil
	}
	c.line, m.running = rest, len(m.rs)
	c.lanes--
	return m
}

func seatOf(r *record.Record) *seat { return r.Seat.(*seat) }

func (s *seat) open() bool { return s.at == running || s.at == rerunning || s.at == waiting }

// leave takes r out of its message: callers hold mu.
func (c *claim) leave(r *record.Record) {
	s := seatOf(r)
	switch s.at {
	case running:
		c.leaveLane(s.m)
	case rerunning:
		c.resumed--
	case waiting:
		c.waits--
	case inLine, done:
	}
	s.at = done
	if c.busy[r.Domain()]--; c.busy[r.Domain()] == 0 {
		delete(c.busy, r.Domain())
	}
	c.changed.Broadcast()
}

func (c *claim) leaveLane(m *delivered) {
	if m.running--; m.running == 0 {
		c.lanes++
	}
}

func (c *claim) Settle(r *record.Record, o record.Outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := seatOf(r); c.mark == nil || !s.open() {
		return false
	}
	c.leave(r)
	c.outcomes[r.Offset] = append(c.outcomes[r.Offset], o)
	n := 0
	for n < len(c.entries) && seatOf(c.entries[n]).at == done {
		n++
	}
	if n > 0 {
		next := c.entries[n-1].Offset + 1
		c.entries = c.entries[n:]
		c.mark(next)
	}
	return true
}

// GiveBack puts fresh copies of rs in line, as the Source rebuilds them from what it fetched.
func (c *claim) GiveBack(rs []*record.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rs {
		if !seatOf(r).open() {
			continue
		}
		c.leave(r)
		c.givenBack++
		again := c.bind(rebuilt(r))
		i := slices.Index(c.entries, r)
		c.entries[i] = again
		at, _ := slices.BinarySearchFunc(c.line, r.Offset, func(r *record.Record, o int64) int { return int(r.Offset - o) })
		c.line = slices.Insert(c.line, at, again)
	}
	c.changed.Broadcast()
}

func rebuilt(r *record.Record) *record.Record {
	return &record.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
		Headers: r.Headers,
	}
}

func (c *claim) Wait(rs []*record.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rs {
		s := seatOf(r)
		switch s.at {
		case running:
			c.leaveLane(s.m)
		case rerunning:
			c.resumed--
		case inLine, waiting, done:
			continue
		}
		s.at = waiting
		c.waits++
		c.maxWaits = max(c.maxWaits, c.waits)
	}
	c.changed.Broadcast()
}

func (c *claim) Resume(rs []*record.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.resumed > 0 && c.resumed+len(rs) > c.room && !c.ending() {
		c.changed.Wait()
	}
	if c.ending() {
		return false
	}
	for _, r := range rs {
		if s := seatOf(r); s.at == waiting {
			s.at = rerunning
			c.waits--
			c.resumed++
		}
	}
	return true
}

// serve hands messages to h, each on a goroutine, and reacts to their end as the Source does to the Router's. It
// returns when the claim ends and every message is back.
func (c *claim) serve(h message.HandlerFunc) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		m := c.next()
		if m == nil {
			return
		}
		wg.Go(func() { c.route(h, record.NewMessage(c.hard, m.rs), m) })
	}
}

func (c *claim) route(h message.HandlerFunc, msg *message.Message, m *delivered) {
	defer func() { // on runtime.Goexit nobody acks and nobody nacks, unless the guard did
		select {
		case <-msg.Acked():
			c.onAck(m)
		case <-msg.Nacked():
			c.GiveBack(m.rs)
		default:
		}
	}()
	if _, err := h(msg); err != nil {
		msg.Nack()
		return
	}
	msg.Ack()
}

// onAck settles a message of one, and gives back what is left of a larger one.
func (c *claim) onAck(m *delivered) {
	if len(m.rs) > 1 {
		c.GiveBack(m.rs)
		return
	}
	if m.rs[0].Settle(record.Acked) {
		c.mu.Lock()
		c.acked++
		c.mu.Unlock()
	}
}

// end closes soft, waits grace for what is in flight, ends the contexts, and lets nothing move any more.
func (c *claim) end(grace time.Duration) {
	c.mu.Lock()
	close(c.soft)
	c.line = nil
	c.changed.Broadcast()
	t := time.AfterFunc(grace, func() {
		c.kill(record.ErrRevoked)
		c.mu.Lock()
		c.changed.Broadcast()
		c.mu.Unlock()
	})
	for c.inFlight() > 0 && c.hard.Err() == nil {
		c.changed.Wait()
	}
	t.Stop()
	c.mark = nil
	c.mu.Unlock()
	c.kill(record.ErrRevoked)
	if c.unwatch != nil {
		c.unwatch()
	}
}

func (c *claim) inFlight() (n int) {
	for _, r := range c.entries {
		if at := seatOf(r).at; at == running || at == waiting {
			n++
		}
	}
	return n
}

// idle waits until nothing is in line and nothing in flight.
func (c *claim) idle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.entries) > 0 {
		c.changed.Wait()
	}
}

func (c *claim) outcome(offset int64) record.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if os := c.outcomes[offset]; len(os) == 1 {
		return os[0]
	}
	return record.Unsettled
}

func rec(offset int64, key string) *record.Record {
	r := &record.Record{Topic: "orders", Offset: offset, Value: []byte(strconv.FormatInt(offset, 10)), Timestamp: time.Unix(0, 0)}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}
