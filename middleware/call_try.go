package middleware

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

var (
	errGoexit = &fault.PanicError{Value: errors.New("call ended its goroutine (runtime.Goexit, as t.FailNow does)")}
	errStuck  = errors.New("call ignores that its context has ended")
)

// answer is what a call gave.
type answer struct {
	reply any
	err   error
}

const (
	runs uint32 = iota
	returned
	leftBehind
)

// left says that nobody waits for the call any more.
func (o *oneCall) left() bool { return o.how.Load() == leftBehind }

// do calls. Whatever the call does to us, its record has its verdict from here, unless patience was over before: then what
// the call took along is given back.
func (o *oneCall) do() {
	a := answer{err: errGoexit}
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fault.Recovered(p)}
		}
		if o.how.CompareAndSwap(runs, returned) {
			o.c.patience.forget(o)
			o.conclude(func() answer { return a })
			return
		}
		o.c.rt.stuck.remove(o)
		o.release()
	}()
	o.c.patience.watch(o)
	reply, err := o.c.rt.Call.Do(o.ctx, o.r)
	a = answer{reply, fault.Usable(err)}
}

// conclude gives the record its verdict, also if a hook panics.
func (o *oneCall) conclude(of func() answer) {
	err := errStray
	defer func() {
		if p := recover(); p != nil {
			_ = o.c.rt.stray(o.r, p)
		}
		o.giveBack(err)
	}()
	err = o.judge(of())
}

// leaveBehind goes on without a call that has outlived patience, unless it came back in this very moment.
func (o *oneCall) leaveBehind() {
	c, r := o.c, o.r
	c.rt.stuck.add(o, dedup.Stuck{Route: c.rt.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Since: o.began})
	if !o.how.CompareAndSwap(runs, leftBehind) {
		c.rt.stuck.remove(o)
		return
	}
	c.rt.callers.lost()
	o.conclude(func() answer { return answer{err: c.leaveBehind(r, time.Since(o.began))} })
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
	of map[*oneCall]dedup.Stuck
}

func (s *stuckCalls) add(o *oneCall, is dedup.Stuck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[*oneCall]dedup.Stuck{}
	}
	s.of[o] = is
}

func (s *stuckCalls) remove(o *oneCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, o)
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
