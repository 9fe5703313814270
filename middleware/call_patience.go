package middleware

import (
	"context"
	"sync"
	"time"
)

// patience is how long the calls of a message are waited for: until the deadline and the grace after it are over, or that
// grace after the end of the delivery. It has one timer for all of them, because one a call costs more than the breaker:
// their time is the same, so the first that began is the first that is overdue.
type patience struct {
	mu          sync.Mutex
	first, last *oneCall
	timer       *time.Timer
	armed       bool
	unhook      func() bool
	ended       bool // the delivery
}

func (p *patience) watch(o *oneCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := o.c.rt.Call
	o.until = o.began.Add(call.Timeout + call.HardGrace)
	if p.unhook == nil {
		p.unhook = context.AfterFunc(o.c.msg.Context(), func() { p.shorten(call.HardGrace) })
	}
	if p.ended {
		o.until = earlier(o.until, time.Now().Add(call.HardGrace))
	}
	if o.prev, p.last = p.last, o; o.prev != nil {
		o.prev.next = o
	} else {
		p.first = o
	}
	o.waited = true
	p.arm()
}

// arm sets the timer, if it is not set for something earlier. The lock is held.
func (p *patience) arm() {
	if p.armed || p.first == nil {
		return
	}
	p.armed = true
	d := time.Until(p.first.until)
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.ring)
		return
	}
	p.timer.Reset(d)
}

func (p *patience) forget(o *oneCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(o)
}

func (p *patience) remove(o *oneCall) {
	if !o.waited {
		return
	}
	if o.waited = false; o.prev != nil {
		o.prev.next = o.next
	} else {
		p.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		p.last = o.prev
	}
	o.prev, o.next = nil, nil
}

// ring leaves behind who is overdue. The timer may have been set for one that has returned since.
func (p *patience) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	for now := time.Now(); p.first != nil && !p.first.until.After(now); {
		o := p.first
		p.remove(o)
		go o.leaveBehind()
	}
	p.arm()
}

// shorten is told that the delivery has ended.
func (p *patience) shorten(grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	last := time.Now().Add(grace)
	for o := p.first; o != nil; o = o.next {
		o.until = earlier(o.until, last)
	}
	p.armed = false
	p.arm()
}

// end comes when no call is waited for any more.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unhook != nil {
		p.unhook()
	}
	if p.timer != nil {
		p.timer.Stop()
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
