package parking

import "github.com/headrace/headrace/record"

// resume is a call of Resume that waits for a lane.
type resume struct {
	work  *work
	seats []*seat
	ready chan struct{}
}

// Resume implements record.Owner: first come first served, and before anything new is claimed. A message has one lane; if
// something of it runs, rs run beside it at once.
func (w *work) Resume(rs []*record.Record) bool {
	q := w.tryResume(rs)
	if q == nil {
		return false
	}
	select {
	case <-q.ready:
		return !rs[0].Ending()
	case <-rs[0].Soft(): // a lane that was granted meanwhile goes when rs are given back
		return false
	}
}

func (w *work) tryResume(rs []*record.Record) *resume {
	s := w.src
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &resume{work: w, ready: make(chan struct{})}
	for _, r := range rs {
		if st := w.seatOf(r); st != nil && st.state == waiting {
			q.seats = append(q.seats, st)
		}
	}
	switch {
	case len(q.seats) == 0 || w.ending:
		return nil
	case w.running > 0:
		q.run()
	case s.lanes > 0:
		s.lanes--
		q.run()
	default:
		s.queue = append(s.queue, q)
	}
	return q
}

// run sets running what still waits.
func (q *resume) run() {
	for _, st := range q.seats {
		if st.state == waiting && !st.line.over {
			st.state = running
			q.work.running++
		}
	}
	close(q.ready)
}

// returnLane is for a lane that was taken for nothing. It wakes no claim: nothing is due, and to look again at once would
// be to do nothing else.
func (s *Source) returnLane() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.grantLane() {
		s.lanes++
	}
}

// laneFreed gives a lane to the message that waits longest to resume, else to a new claim. The lock is held.
func (s *Source) laneFreed() {
	if !s.grantLane() {
		s.lanes++
		s.nudge()
	}
}

// grantLane is false when nobody waits to resume.
func (s *Source) grantLane() bool {
	for len(s.queue) > 0 {
		q := s.queue[0]
		s.queue = s.queue[1:]
		if q.work.running > 0 { // another chain of it was granted one meanwhile
			q.run()
			continue
		}
		if q.run(); q.work.running > 0 {
			return true
		}
	}
	return false
}
