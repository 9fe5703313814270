package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/record"
)

// calling is one message in the call layer. Its records stand in files, one a domain, of which the first one calls:
//
//	file ──► todo ──► one of the route's callers ──► back ──► failed: the others of the file are not run
//	 ▲                                                └─────► has its reply: inwards, with all that have theirs ──┐
//	 └──── settled: the next of the file ◄────────────────────────────────────────────────────────────────────────┘
//
// The message's own goroutine is the only one that goes inwards, and the only one that touches a file which no caller
// has in hand.
type calling struct {
	rt   *Route
	msg  *message.Message
	next message.HandlerFunc
	soft <-chan struct{}

	all   []*record.Record            // of the message, but for those that the retry layer has again
	soon  *early                      // to which failed ones go at once; nil: they wait for the others
	known map[*record.Record]struct{} // to the inbox: nothing to call for
	ready []*file                     // their first ones go inwards next
	out   int                         // files that callers have, or are to have

	todo     []*file        // guarded by the callers' lock
	inHand   sync.WaitGroup // files that callers have
	back     chan *file
	over     atomic.Bool  // call nobody any more
	begun    atomic.Int64 // calls that have their place
	away     bool         // the message's lane was given up
	patience patience
}

// laneTime is after which calls give up the message's lane, if it waits for nothing else: they are in nobody's way but
// their key's. One slow call in each message would otherwise take the partition's throughput down to a few messages at a
// time. A call has its place by then, so that messages without a lane are never more than the dependency takes calls.
const laneTime = 100 * time.Millisecond

// file is what is left of one domain, in order.
type file struct {
	rs []*record.Record
	n  int // how many of them go inwards next
}

// errStray stands on a record whose caller did not come back, by a panic that is no call's.
var errStray = errors.New("something outside of the call panicked or ended its goroutine")

func (c *calling) run(rs []*record.Record) {
	if err := c.look(rs); err != nil {
		for _, r := range rs {
			r.Err = err
		}
		return
	}
	files := split(rs)
	c.back = make(chan *file, len(files)) // has room for all
	callers := &c.rt.callers
	callers.join(c.rt.Call.Dependency.Config().MaxConcurrent)
	// Deferred: a panic or runtime.Goexit inside of this layer must not give records back that callers still write to.
	defer c.patience.end()
	defer c.inHand.Wait()
	defer callers.part(c)
	defer c.over.Store(true)
	for _, f := range files {
		c.step(f)
	}
	for len(c.ready)+c.out > 0 {
		c.collect()
		c.resume()
		c.inwards()
	}
}

// resume takes a lane again when there is something to do, or nothing left to wait for. When the claim ends there are none:
// what was called for goes on without one, because it has begun, and whoever gets it next would call again. Nothing new
// begins beside it.
func (c *calling) resume() {
	if !c.away || len(c.ready) == 0 && c.out > 0 {
		return
	}
	c.away = false
	if !record.Resume(record.Remaining(c.all)) {
		c.over.Store(true)
	}
}

// look asks the inbox about those that would call, in one statement.
func (c *calling) look(rs []*record.Record) error {
	var ask []*record.Record
	for _, r := range rs {
		if c.rt.uncalled(r) {
			ask = append(ask, r)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	answers, err := c.rt.Call.Inbox.Look(c.msg.Context(), ask)
	if err == nil && len(answers) != len(ask) {
		err = fmt.Errorf("inbox gave %d answers about %d records", len(answers), len(ask))
	}
	if err != nil {
		return err
	}
	for i, r := range ask {
		if a := answers[i]; a != dedup.Fresh && a != dedup.DeadReplay {
			if c.known == nil {
				c.known = map[*record.Record]struct{}{}
			}
			c.known[r] = struct{}{}
		}
	}
	return nil
}

// split makes a file of each domain, and of each record that depends on no other.
func split(rs []*record.Record) (files []*file) {
	at := map[string]*file{}
	for _, r := range rs {
		f := at[r.Domain()]
		if f == nil || r.Domain() == "" {
			f = &file{}
			files = append(files, f)
			at[r.Domain()] = f
		}
		f.rs = append(f.rs, r)
	}
	return files
}

// step says what the first of f does: goes inwards, with those right behind it that may, or calls.
func (c *calling) step(f *file) {
	f.n = 0
	for _, r := range f.rs {
		if _, known := c.known[r]; !known && c.rt.uncalled(r) {
			break
		}
		f.n++
	}
	switch {
	case f.n > 0:
		c.ready = append(c.ready, f)
	case len(f.rs) > 0:
		c.out++
		c.rt.callers.put(c, f)
	}
}

// collect takes what callers bring back. It waits only if there is nothing else to do.
func (c *calling) collect() {
	if len(c.ready) == 0 {
		c.take(c.wait())
	}
	for {
		select {
		case f := <-c.back:
			c.take(f)
		default:
			return
		}
	}
}

// wait gives up the lane for calls that take long. When the delivery ends nobody waits for a caller any more.
func (c *calling) wait() *file {
	tick := time.NewTicker(laneTime)
	defer tick.Stop()
	soft, hard := c.soft, c.msg.Context().Done()
	for {
		select {
		case f := <-c.back:
			return f
		case <-soft:
			soft = nil
			c.withdraw(record.ErrNotRun)
		case <-hard:
			hard = nil
			c.withdraw(context.Cause(c.msg.Context()))
		case <-tick.C:
			if !c.away && int(c.begun.Load()) == c.out {
				record.Wait(record.Remaining(c.all))
				c.away = true
			}
		}
	}
}

func (c *calling) withdraw(why error) {
	for _, f := range c.rt.callers.withdraw(c) {
		f.rs[0].Err = why
		c.back <- f
	}
}

func (c *calling) take(f *file) {
	c.out--
	if f.rs[0].Err == nil {
		c.step(f)
		return
	}
	f.stop(1)
	c.hand(f)
}

// hand gives a failed file to the retry layer, if that takes it already.
func (c *calling) hand(f *file) {
	if c.soon == nil || !c.soon.take(f.rs, c.away) {
		return
	}
	c.all = slices.DeleteFunc(slices.Clone(c.all), func(r *record.Record) bool { return slices.Contains(f.rs, r) })
}

// stop leaves those from the i-th on behind one that failed.
func (f *file) stop(i int) {
	for _, r := range f.rs[i:] {
		r.Err = record.ErrNotRun
	}
}

// inwards takes all that are ready through the inner layers, in the order of their offsets, and lets those behind them
// step forward.
func (c *calling) inwards() {
	files := c.ready
	if c.ready = nil; len(files) == 0 {
		return
	}
	var rs []*record.Record
	for _, f := range files {
		rs = append(rs, f.rs[:f.n]...)
	}
	slices.SortFunc(rs, func(a, b *record.Record) int { return int(a.Offset - b.Offset) })
	_, err := c.next(record.Derive(c.msg, rs))
	for _, f := range files {
		c.passed(f, err)
	}
}

// passed: err is only for records without a verdict of their own.
func (c *calling) passed(f *file, err error) {
	left := record.Remaining(f.rs[:f.n])
	for _, r := range left {
		if r.Err == nil {
			r.Err = err
		}
	}
	if len(left) > 0 {
		f.stop(f.n)
		return
	}
	f.rs = f.rs[f.n:]
	c.step(f)
}
