package downstream

import "time"

// inFlight is the calls that have not ended, with one alarm for all of them: a timer a call costs more than the breaker.
// Callers hold the breaker's lock.
type inFlight struct {
	first *Call
	alarm *time.Timer // for at; nil if there is none
	at    time.Time
	armed uint64 // how often; which alarm it is that rings
	ring  func(armed uint64)
}

func (l *inFlight) add(c *Call) {
	if c.next = l.first; c.next != nil {
		c.next.prev = c
	}
	l.first = c
	l.wake(c.due)
}

func (l *inFlight) remove(c *Call) {
	if c.next != nil {
		c.next.prev = c.prev
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	c.prev, c.next = nil, nil
}

// wake arms the alarm if it is not armed for an earlier time. One that is armed for a call that has ended rings for
// nothing, once.
func (l *inFlight) wake(at time.Time) {
	if l.alarm != nil {
		if !at.Before(l.at) {
			return
		}
		l.alarm.Stop()
	}
	l.armed++
	armed := l.armed
	l.alarm, l.at = time.AfterFunc(time.Until(at), func() { l.ring(armed) }), at
}

// overdue gives the calls that have come to their limit, and arms the alarm for the next that will. An alarm that rings
// although another was armed in its place is none.
func (l *inFlight) overdue(armed uint64) []*Call {
	if l.armed != armed {
		return nil
	}
	l.alarm = nil
	var over []*Call
	var next time.Time
	now := time.Now()
	for c := l.first; c != nil; c = c.next {
		switch {
		case !c.due.After(now):
			over = append(over, c)
		case next.IsZero() || c.due.Before(next):
			next = c.due
		}
	}
	if !next.IsZero() {
		l.wake(next)
	}
	return over
}
