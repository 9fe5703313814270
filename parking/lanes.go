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
	if len(q.seats) == 0 || w.ending {
		return nil
	}
	s.queue = append(s.queue, q)
	s.grantLanes()
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
	s.lanes++
	s.grantLanes()
}

// laneFreed gives a lane to the message that waits longest to resume, else to a new claim. The lock is held.
func (s *Source) laneFreed() {
	s.lanes++
	s.grantLanes()
	s.nudge()
}

// grantLanes resumes what waits, in order, up to the first that must wait on: for a lane, or for what runs beside it to
// end. So a suspect has its turn, however much comes after it. The lock is held.
func (s *Source) grantLanes() {
	rest := s.queue[:0]
	for i, q := range s.queue {
		switch {
		case q.work.running > 0: // it has its lane: another chain of it runs
			q.run()
		case len(rest) == 0 && s.lanes > 0 && s.fits(q.work.suspect):
			s.lanes--
			if q.run(); q.work.running == 0 { // its lines are over
				s.lanes++
			}
		default:
			rest = append(rest, s.queue[i])
		}
	}
	s.queue = rest
}

// fits says whether a message may run beside those that do: a suspect runs alone. One that waits runs nothing, and
// neither keeps others from running nor is kept by them.
func (s *Source) fits(suspect bool) bool {
	if s.alone > 0 {
		return false
	}
	for w := range s.works {
		if w.running > 0 && (suspect || w.suspect) {
			return false
		}
	}
	return true
}
