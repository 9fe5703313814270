package middleware

import (
	"context"
	"slices"
	"sync"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// early takes chains from the call layer while others of their message still call: a record that failed at once must not
// wait for its dead letter, or for its next attempt, until the slowest call beside it is over.
type early struct {
	d      *delivery
	chains sync.WaitGroup
	gone   map[*record.Record]struct{} // only the message's own goroutine looks
	all    []*record.Record            // of the pass
	// apart are the domains of which the decode layer has kept records back: one that cannot be read, and those behind it.
	// Their calls fail together with them or not at all: as a chain of its own what is kept back would not wait for them.
	apart map[string]struct{}
}

type earlyKey struct{}

// early gives nil for a route that does not call: it takes nothing.
func (d *delivery) early() *early {
	if d.rt.Call == nil {
		return nil
	}
	return &early{d: d}
}

// given is told which of the pass came to the call layer, in the same order.
func (e *early) given(rs []*record.Record) {
	if e == nil || len(rs) == len(e.all) {
		return
	}
	e.apart = map[string]struct{}{}
	for _, r := range e.all {
		if len(rs) > 0 && rs[0] == r {
			rs = rs[1:]
			continue
		}
		e.apart[r.Domain()] = struct{}{}
	}
	delete(e.apart, "") // which depends on no other
}

// wait is for the end of the chains that were taken.
func (e *early) wait() {
	if e != nil {
		e.chains.Wait()
	}
}

func earlyOf(ctx context.Context) *early {
	e, _ := ctx.Value(earlyKey{}).(*early)
	return e
}

// take makes a chain of rs, a failed call and those behind it, and lets it run; waiting says that they have no lane. It is
// false for a failure of which the gates must hear with the others of its pass: those chains begin when that is over.
func (e *early) take(rs []*record.Record, waiting bool) bool {
	if _, apart := e.apart[rs[0].Domain()]; apart {
		return false
	}
	c := &chain{delivery: e.d, rs: rs, waiting: waiting}
	call := c.called()
	if call == nil {
		return false
	}
	switch c.fault = e.d.classify(call); c.fault.Class {
	case fault.ClassCancelled:
		return false
	case fault.ClassUnavailable:
		if c.fault.Dependency != call.Dependency {
			return false
		}
	case fault.ClassPermanent, fault.ClassTransient, fault.ClassAmbiguous, fault.ClassBusy:
		if c.fault.RetryAfter > 0 {
			return false
		}
	}
	if e.gone == nil {
		e.gone = map[*record.Record]struct{}{}
	}
	for _, r := range rs {
		e.gone[r] = struct{}{}
	}
	e.chains.Go(c.run)
	return true
}

// rest gives those of rs that were not taken; rs itself if that is all.
func (e *early) rest(rs []*record.Record) []*record.Record {
	if e == nil || len(e.gone) == 0 {
		return rs
	}
	return slices.DeleteFunc(slices.Clone(rs), func(r *record.Record) bool {
		_, gone := e.gone[r]
		return gone
	})
}
