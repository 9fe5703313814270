package claim

import (
	"slices"
	"time"

	"github.com/headrace/headrace/record"
)

// current gives the seat of r if r is its delivery and has no end yet, else nil: it is settled, was given back, or its
// claim is closed. Nothing moves for such a record any more.
//
// An old delivery may settle late: given back -> delivered again as another Record -> the old handler settles. Its
// seat then holds another record, so it finds nothing to settle.
func (l *Line) current(r *record.Record) *seat {
	s, _ := r.Seat.(*seat)
	if s == nil || s.rec != r || l.claim.shut || s.state != running && s.state != waiting {
		return nil
	}
	return s
}

// Settle marks r done in this line and reports whether this call did it.
func (l *Line) Settle(r *record.Record, _ record.Outcome) bool {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	s := l.current(r)
	if s == nil {
		return false
	}
	l.end(s, settled)
	l.leave(s.dom)
	// Seats of one fetch share their memory, and a batch has seats of two: a seat that still pointed to its batch would
	// keep the fetch before, whose seats keep the one before that, and so on to the claim's first record.
	s.delivery, s.dom = delivery{state: settled}, nil
	if s.entry.left--; s.entry.left == 0 {
		l.claim.settled()
	}
	l.claim.drain()
	return true
}

// end takes the seat out of its batch; what becomes of its domain and its place is the caller's.
func (l *Line) end(s *seat, to state) {
	l.stopRunning(s, to)
	if s.batch.open--; s.batch.open == 0 {
		delete(l.batches, s.batch)
	}
	l.claim.inFlight--
}

// stopRunning gives up what s occupies, if it runs.
func (l *Line) stopRunning(s *seat, to state) {
	was := s.state
	s.state = to
	switch {
	case was != running:
	case s.resumed:
		s.resumed = false
		l.resumed--
		l.grant()
	default:
		if s.batch.running--; s.batch.running == 0 {
			l.lanes++
			l.Wake()
		}
	}
}

// GiveBack puts those of rs that are not settled back to their place, where they wait out a back-off.
func (l *Line) GiveBack(rs []*record.Record) {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	resting := make(map[time.Duration][]*seat, 1)
	for _, r := range rs {
		if s := l.current(r); s != nil && l.rest(s) {
			d := backoff(s.returns)
			resting[d] = append(resting[d], s)
		}
	}
	for d, seats := range resting {
		time.AfterFunc(d, func() { l.rested(seats) })
	}
	l.claim.drain()
}

// rest ends the delivery of s and reports whether it will come again. Its domain stays busy until it has rested:
// nothing of it may overtake.
func (l *Line) rest(s *seat) bool {
	if l.claim.softened {
		l.end(s, dropped)
		return false
	}
	l.end(s, resting)
	s.rec = nil
	s.returns++
	return true
}

func (l *Line) rested(seats []*seat) {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	if !l.claim.softened {
		l.requeue(seats)
	}
}

// requeue puts seats, in offset order, into their places. From the last to the first: then each is near the front.
func (l *Line) requeue(seats []*seat) {
	for _, s := range slices.Backward(seats) {
		s.delivery = delivery{}
		if s.dom == nil {
			l.again.insert(s)
			continue
		}
		s.dom.blocked.insert(s)
		l.leave(s.dom)
	}
	l.Wake()
}

// Return puts the batch back untouched: nobody was there to take it over. It costs no back-off.
func (b *Batch) Return() {
	l := b.line
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	back := make([]*seat, 0, len(b.seats))
	for i, s := range b.seats {
		if l.current(b.Records[i]) == nil {
			continue
		}
		l.end(s, inLine)
		s.rec = nil
		back = append(back, s)
	}
	if !l.claim.softened {
		l.requeue(back)
	}
	l.claim.drain()
}

// Wait gives up what those of rs occupy that run, a lane or room. A wait is no running time.
func (l *Line) Wait(rs []*record.Record) {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	for _, r := range rs {
		if s := l.current(r); s != nil && s.state == running {
			l.stopRunning(s, waiting)
			r.End()
		}
	}
}
