package downstream

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/durations"
	"github.com/headrace/headrace/record"
)

// breaker is gobreaker's, with what it leaves open:
//
//   - It says nothing of when it will be half open, and changes its state only when it is touched. So the time of
//     opening is noted here, and the gate wakes somebody to touch it.
//   - A probe that never ends keeps it half open for ever. So each call has a limit.
//   - It tells of a change under its lock, where nothing may be done. So changes are queued, and told after it.
//   - It forgets what ends after a change. So each call compares itself.
//
// Everything of gobreaker's is called under mu: then what a call finds after it was let through is what it was let
// through by.
type breaker struct {
	d *Dependency

	mu     sync.Mutex
	cb     *gobreaker.TwoStepCircuitBreaker[struct{}]
	state  gobreaker.State
	next   time.Time // when it will be half open
	since  time.Time // when it was last closed, if it is not
	queue  []change
	untold []record.BreakerInfo
	// opened is what is told of its opening, with the Err of the last probe; tripped is what it opened by, and failing the
	// failure that it is just told of.
	opened  record.BreakerInfo
	tripped BreakerCounts
	failing error
	tells   bool // somebody is telling the hooks
	calls   inFlight
	sent    amplification
	took    durations.Recent // of successes, if somebody asks
	seen    seen
	// answered is when somebody was, last, and freshThen seen.fresh of that moment.
	answered  time.Time
	freshThen uint64

	// queued is how many changes the gate has not been told of; leading is held while it is. Whoever has touched the
	// breaker waits for it: else a record that is to wait at the gate could pass it before it is shut.
	queued  atomic.Int64
	leading sync.Mutex
}

// change is one of state.
type change struct {
	to   gobreaker.State
	next time.Time
	why  error
}

// hair is how much later than the breaker's time a probe is let through: gobreaker is half open after it, not at it.
const hair = time.Millisecond

var (
	errFailed   = errors.New("failed")
	errExcluded = errors.New("excluded")
)

func (b *breaker) init(d *Dependency) {
	b.d = d
	b.calls.ring = b.ring
	c := d.cfg.Breaker
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         d.cfg.Name,
		MaxRequests:  1, // the probe
		Interval:     c.Window,
		BucketPeriod: c.BucketPeriod,
		Timeout:      c.OpenFor,
		// Not n.Requests: that counts what is in flight, and what was excluded.
		ReadyToTrip: func(n gobreaker.Counts) bool {
			b.tripped = BreakerCounts{int(n.TotalSuccesses), int(n.TotalFailures), int(n.ConsecutiveFailures)}
			return c.trips(b.tripped)
		},
		IsExcluded:    func(err error) bool { return err == errExcluded }, //nolint:errorlint // nobody wraps it
		OnStateChange: b.changed,
	})
}

// changed runs under both locks.
func (b *breaker) changed(_ string, from, to gobreaker.State) {
	now := time.Now()
	info := record.BreakerInfo{Dependency: b.d.cfg.Name, From: stateNames[from], To: stateNames[to]}
	if from == gobreaker.StateClosed {
		b.since = now
	}
	switch to {
	case gobreaker.StateOpen:
		b.seen.opened++
		b.next = now.Add(b.d.cfg.Breaker.OpenFor + hair)
		b.explain(&info)
	case gobreaker.StateClosed:
		info.Open = now.Sub(b.since)
		b.opened = record.BreakerInfo{}
	case gobreaker.StateHalfOpen:
	}
	b.state = to
	b.queue = append(b.queue, change{to, b.next, info.Err})
	b.untold = append(b.untold, info)
	b.queued.Add(1)
}

// explain says with what it opens.
func (b *breaker) explain(info *record.BreakerInfo) {
	info.Err = b.failing
	if info.From != record.BreakerClosed {
		b.opened.Err = cmp.Or(info.Err, b.opened.Err)
		return
	}
	c := b.d.cfg.Breaker
	info.Failures, info.Requests, info.Window = b.tripped.Failures, b.tripped.Failures+b.tripped.Successes, c.Window
	if c.Trip == nil {
		info.MinRequests, info.FailureRatio = c.MinRequests, c.FailureRatio
	}
	b.opened = *info
}

var stateNames = map[gobreaker.State]string{
	gobreaker.StateClosed:   record.BreakerClosed,
	gobreaker.StateHalfOpen: record.BreakerHalfOpen,
	gobreaker.StateOpen:     record.BreakerOpen,
}

func (b *breaker) now() string {
	b.mu.Lock()
	state := b.cb.State()
	b.mu.Unlock()
	b.settle()
	return stateNames[state]
}

// allow lets c through, or says why not.
func (b *breaker) allow(c *Call) error {
	b.mu.Lock()
	seen := b.seen
	done, err := b.cb.Allow()
	state, next := b.state, b.next
	if err == nil {
		c.done, c.seen = done, seen
		c.probe = state == gobreaker.StateHalfOpen
		b.calls.add(c)
		b.sent.add(c.began, c.after.failed)
	}
	b.mu.Unlock()
	b.settle()
	if err == nil {
		if c.probe {
			b.d.gate.probeBegan()
		}
		return nil
	}
	refused := &fault.RefusedError{Dependency: b.d.cfg.Name, Reason: fault.ErrBreakerOpen}
	if state == gobreaker.StateOpen { // not while a probe is out, which may end at any moment
		refused.RetryAfter = max(time.Until(next), hair)
	}
	return refused
}

// ring ends the calls that do not end: nobody knows what becomes of them.
func (b *breaker) ring(armed uint64) {
	b.mu.Lock()
	over := b.calls.overdue(armed)
	b.mu.Unlock()
	for _, c := range over {
		c.end(fault.SaysDown, record.CallFailed, fault.Fault{Class: fault.ClassAmbiguous}, fmt.Errorf("no end of the call within %s", c.due.Sub(c.began)))
	}
}

// end takes the news of a call, and why it failed. The first time counts.
func (b *breaker) end(c *Call, e fault.Evidence, why error) (first bool, charge Charge) {
	b.mu.Lock()
	if first = !c.ended; first {
		c.ended = true
		b.calls.remove(c)
		b.failing = why
		c.done(b.resultOf(c, e))
		b.failing = nil
		if e == fault.SaysDown && !c.after.failed {
			b.seen.fresh++
		}
	}
	if e == fault.SaysDown {
		charge = b.chargeOf(c)
	}
	if e == fault.SaysUp {
		b.seen.answers++
		b.answered, b.freshThen = time.Now(), b.seen.fresh
		if first && b.d.cfg.NormalTime == Measured {
			b.took.Add(b.answered, b.answered.Sub(c.began))
		}
	}
	if first || e != fault.SaysNothing {
		c.streak = c.after.with(c, e, b.seen)
	}
	b.mu.Unlock()
	b.settle()
	return first, charge
}

// resultOf is what gobreaker is told.
func (b *breaker) resultOf(c *Call, e fault.Evidence) error {
	if e == fault.SaysDown && !c.probe && b.knownBy(c.after) {
		return errExcluded
	}
	return results[e]
}

var results = [...]error{fault.SaysNothing: errExcluded, fault.SaysUp: nil, fault.SaysDown: errFailed}

// settle tells the gate and then the hooks what has changed, in order, outside of mu.
func (b *breaker) settle() {
	if b.queued.Load() == 0 {
		return
	}
	b.leading.Lock()
	b.mu.Lock()
	changes := b.queue
	b.queue = nil
	b.mu.Unlock()
	for _, c := range changes {
		b.lead(c)
		b.queued.Add(-1)
	}
	b.leading.Unlock()
	b.tellAll()
}

func (b *breaker) lead(c change) {
	switch c.to {
	case gobreaker.StateOpen:
		b.d.gate.shutUntil(c.next, c.why)
	case gobreaker.StateClosed:
		b.d.gate.answered()
	case gobreaker.StateHalfOpen: // the gate knows the time
	}
}

// oldNews says that c is one more failure of a record that fails while others are answered.
func (b *breaker) oldNews(c *Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.knownBy(c.after)
}

// up says that the dependency answered, if the breaker agrees: what began before it opened may answer after it.
func (b *breaker) up() {
	if b.d.gate.isOpen() {
		return
	}
	b.leading.Lock()
	defer b.leading.Unlock()
	if b.closed() {
		b.d.gate.answered()
	}
}

func (b *breaker) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == gobreaker.StateClosed
}

// tellAll tells the hooks, one goroutine at a time. A hook may ask for the state, and change it by that: whoever is
// telling tells that too.
func (b *breaker) tellAll() {
	for {
		b.mu.Lock()
		if b.tells || len(b.untold) == 0 {
			b.mu.Unlock()
			return
		}
		infos := b.untold
		b.untold, b.tells = nil, true
		b.mu.Unlock()
		b.tellThese(infos)
	}
}

func (b *breaker) tellThese(infos []record.BreakerInfo) {
	defer func() { // a hook that panics is heard of once, and not the last
		b.mu.Lock()
		b.tells = false
		b.mu.Unlock()
	}()
	for _, info := range infos {
		b.d.tell.breaker(info)
	}
}
