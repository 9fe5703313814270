package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

var (
	errGoexit = &fault.PanicError{Value: errors.New("call ended its goroutine (runtime.Goexit, as t.FailNow does)")}
	errStuck  = errors.New("call ignores that its context has ended")
)

// run is one run of Call.Do, on a goroutine of its own that can be left behind. That goroutine never writes to the
// record: what it has found out goes through the channel, to whoever still waits there.
type run struct {
	came chan answer
	end  atomic.Uint32 // who was first: the goroutine's return, or the worker's patience
}

type answer struct {
	reply any
	err   error
}

const (
	runs uint32 = iota
	returned
	leftBehind
)

// try runs Do once and waits for it: until the deadline and the grace after it are over, or that grace after the end of
// the delivery.
func (c *calling) try(ctx context.Context, r *record.Record, p *place) (any, error) {
	run, began := &run{came: make(chan answer, 1)}, time.Now()
	go c.do(ctx, r, run, p.release)
	if a, ok := c.await(run); ok {
		return a.reply, a.err
	}
	p.lent = true
	c.rt.stuck.add(run, dedup.Stuck{Route: c.rt.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Since: began})
	if !run.end.CompareAndSwap(runs, leftBehind) { // it came back in this very moment
		c.rt.stuck.remove(run)
		p.lent = false
		a := <-run.came
		return a.reply, a.err
	}
	return nil, c.leaveBehind(r, time.Since(began))
}

// do is the call with what it may do to us. When it comes back too late it gives back what it took along.
func (c *calling) do(ctx context.Context, r *record.Record, run *run, release func()) {
	a := answer{err: errGoexit}
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fault.Recovered(p)}
		}
		if run.end.CompareAndSwap(runs, returned) {
			run.came <- a
			return
		}
		c.rt.stuck.remove(run)
		release()
	}()
	reply, err := c.rt.Call.Do(ctx, r)
	a = answer{reply, fault.Usable(err)}
}

// await waits for the run; false when patience is over.
func (c *calling) await(run *run) (answer, bool) {
	call := c.rt.Call
	last := time.Now().Add(call.Timeout + call.HardGrace)
	patience := time.NewTimer(call.Timeout + call.HardGrace)
	defer patience.Stop()
	for over := c.msg.Context().Done(); ; {
		select {
		case a := <-run.came:
			return a, true
		case <-over:
			over = nil
			patience.Reset(min(time.Until(last), call.HardGrace))
		case <-patience.C:
			return answer{}, false
		}
	}
}

// leaveBehind tells of a call that does not come back, and what it is for its record: nobody knows whether it was made.
func (c *calling) leaveBehind(r *record.Record, age time.Duration) error {
	c.rt.report(record.Report{
		Kind: record.ReportStuckRecord, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Age: age, Err: errStuck,
		Hint: "the call does not heed its context; its goroutine and its place among MaxConcurrent are lost until it returns",
	})
	return fault.Ambiguous(fmt.Errorf("%w: %s after it had begun, with a timeout of %s", errStuck, age, c.rt.Call.Timeout))
}

// stuckCalls are the calls that were left behind and have not come back.
type stuckCalls struct {
	mu sync.Mutex
	of map[*run]dedup.Stuck
}

func (s *stuckCalls) add(r *run, is dedup.Stuck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[*run]dedup.Stuck{}
	}
	s.of[r] = is
}

func (s *stuckCalls) remove(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, r)
}

// Stuck gives the call that has outlived its Timeout and HardGrace for the longest, and whether there is one: its record
// has gone on, but its goroutine cannot be ended. Safe for concurrent use.
func (rt *Route) Stuck() (oldest dedup.Stuck, ok bool) {
	rt.stuck.mu.Lock()
	defer rt.stuck.mu.Unlock()
	for _, s := range rt.stuck.of {
		if !ok || s.Since.Before(oldest.Since) {
			oldest, ok = s, true
		}
	}
	return oldest, ok
}
