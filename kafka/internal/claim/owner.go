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
	s.entry.left--
	// A claim whose window is led by another entry has nothing to advance over.
	if s.entry.left == 0 && l.claim.window[0].left == 0 {
		l.claim.advance()
	}
	l.claim.drain()
	return true
}

// end takes the seat out of its batch; what becomes of its domain and its place is the caller's.
func (l *Line) end(s *seat, to state) {
	b := s.batch
	wasRunning := s.state == running
	s.state = to
	if wasRunning {
		l.stopRunning(b)
	}
	if b.open--; b.open == 0 {
		delete(l.batches, b)
	}
	l.claim.inFlight--
}

func (l *Line) stopRunning(b *Batch) {
	if b.running--; b.running == 0 {
		l.freeLane()
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

// Wait gives up the lane of those of rs that run. A wait is no running time.
func (l *Line) Wait(rs []*record.Record) {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	for _, r := range rs {
		if s := l.current(r); s != nil && s.state == running {
			s.state = waiting
			r.End()
			l.stopRunning(s.batch)
		}
	}
}

// resume is a call of Resume that waits for a lane.
type resume struct {
	batch *Batch
	seats []*seat
	ready chan struct{}
}

// Resume takes a lane for rs again, first come first served and before anything new begins. A batch has one lane: if
// another chain of it runs, rs run beside it at once.
func (l *Line) Resume(rs []*record.Record) bool {
	w := l.tryResume(rs)
	if w == nil {
		return false
	}
	select {
	case <-w.ready:
		return true
	case <-l.claim.soft:
		// A lane that was granted meanwhile goes when the caller gives the records back.
		l.claim.mu.Lock()
		defer l.claim.mu.Unlock()
		l.resumes = slices.DeleteFunc(l.resumes, func(o *resume) bool { return o == w })
		return false
	}
}

func (l *Line) tryResume(rs []*record.Record) *resume {
	l.claim.mu.Lock()
	defer l.claim.mu.Unlock()
	w := &resume{ready: make(chan struct{})}
	for _, r := range rs {
		if s := l.current(r); s != nil && s.state == waiting {
			w.batch, w.seats = s.batch, append(w.seats, s)
		}
	}
	switch {
	case w.batch == nil || l.claim.softened:
		return nil
	case w.batch.running > 0:
		l.run(w)
	case l.lanes > 0:
		l.lanes--
		l.run(w)
	default:
		l.resumes = append(l.resumes, w)
	}
	return w
}

// run sets the seats of w running. Those that were settled or given back while it waited stay so.
func (l *Line) run(w *resume) {
	for _, s := range w.seats {
		if s.batch == w.batch && s.state == waiting {
			s.state = running
			w.batch.running++
		}
	}
	close(w.ready)
}

// grantLane gives a free lane to the batch that waits longest to resume, with all of its chains that wait: they share
// it. It reports false if none wants it.
func (l *Line) grantLane() bool {
	for len(l.resumes) > 0 {
		b := l.resumes[0].batch
		var left []*resume
		for _, w := range l.resumes {
			if w.batch == b {
				l.run(w)
			} else {
				left = append(left, w)
			}
		}
		l.resumes = left
		// All of its records may have ended while it waited: then the lane is still free.
		if b.running > 0 {
			return true
		}
	}
	return false
}
