package parking

import (
	"context"
	"slices"
	"time"

	"github.com/headrace/headrace/record"
)

type state uint8

const (
	running state = iota
	waiting       // occupies no lane
	settled
	returned
)

// seat is one record of a work.
type seat struct {
	work   *work
	line   *workLine
	parked *Parked
	state  state
}

var _ record.Owner = (*work)(nil)

// seatOf gives the seat of r if r has no end yet and its line is still this work's. The lock is held.
func (w *work) seatOf(r *record.Record) *seat {
	s, _ := r.Seat.(*seat)
	if s == nil || s.work != w || w.shut || s.line.over || s.state != running && s.state != waiting {
		return nil
	}
	return s
}

// Settle implements record.Owner. What is settled leaves with its line's end; a crash before that delivers it again, and
// the inbox knows it.
func (w *work) Settle(r *record.Record, o record.Outcome) bool {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	if s, _ := r.Seat.(*seat); s != nil && s.work == w && o == record.Parked && s.state == settled {
		return true // Repark has made it so
	}
	s := w.seatOf(r)
	if s == nil {
		return false
	}
	w.end(s, settled)
	if o == record.Dead && w.src.store.policy.OnDead == Hold {
		s.line.held = true
		s.line.soften()
	}
	w.closeIfOver(s.line)
	return true
}

// GiveBack implements record.Owner.
func (w *work) GiveBack(rs []*record.Record) {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	for _, r := range rs {
		if s := w.seatOf(r); s != nil {
			w.end(s, returned)
			w.closeIfOver(s.line)
		}
	}
}

// end takes a seat out of what runs.
func (w *work) end(s *seat, to state) {
	was := s.state
	s.state = to
	s.line.open--
	if was == running {
		w.stopRunning()
	}
}

func (w *work) stopRunning() {
	if w.running--; w.running == 0 {
		w.src.laneFreed()
	}
}

// closeIfOver makes the end of a line due, once none of its records is open.
func (w *work) closeIfOver(wl *workLine) {
	if wl.open > 0 || wl.over {
		return
	}
	e := End{Key: wl.Key, Round: wl.Round, Settled: wl.settled()}
	switch {
	case wl.held:
		e.Then = Held
	case len(e.Settled) < len(wl.seats):
		e.Then = Return
		if !w.ending {
			e.Delay = returnDelay
		}
	}
	w.endLine(wl, due{End: e})
}

func (wl *workLine) settled() (places []Place) {
	for _, s := range wl.seats {
		if s.state == settled {
			places = append(places, s.parked.Place)
		}
	}
	return places
}

// endLine makes d due: nothing of the line moves any more.
func (w *work) endLine(wl *workLine, d due) {
	w.close(wl)
	w.ends = append(w.ends, d)
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// close ends a line here: those behind its head begin nothing more.
func (w *work) close(wl *workLine) {
	wl.over = true
	wl.soften()
	for _, s := range wl.seats {
		if s.state == running {
			w.stopRunning()
		}
		if s.state != settled {
			s.state = returned
		}
	}
}

// Repark makes it durable that r, which parking has delivered, has failed and waits for its next round: delay is what its
// handler asked for, 0 for the policy's own. Those behind it stay behind it. It is true for a record of parking; false
// says that r is another's, and nothing was done.
//
// A record whose lease is lost is another process' by now: then nothing is written, and nothing has to be.
func Repark(ctx context.Context, r *record.Record, delay time.Duration, f Failure) (bool, error) {
	s, _ := r.Seat.(*seat)
	if s == nil {
		return false, nil
	}
	w := s.work
	w.src.mu.Lock()
	if w.seatOf(r) == nil {
		w.src.mu.Unlock()
		return true, nil
	}
	d := due{done: make(chan error, 1), End: End{
		Key: s.line.Key, Round: s.line.Round, Settled: s.line.settled(), Then: Again, Delay: delay,
		Failed: s.parked.Place, History: s.parked.History.With(f), Age: s.parked.age(),
	}}
	w.endLine(s.line, d)
	w.src.mu.Unlock()
	select {
	case err := <-d.done:
		if err == nil {
			w.src.mu.Lock()
			s.state = settled
			w.src.mu.Unlock()
		}
		return true, err
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// Wait implements record.Owner.
func (w *work) Wait(rs []*record.Record) {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	for _, r := range rs {
		if s := w.seatOf(r); s != nil && s.state == running {
			s.state = waiting
			r.End()
			w.stopRunning()
		}
	}
}

// acked settles a message of one, for a handler without our stack; of a larger one such a handler has seen nothing.
func (w *work) acked() {
	if len(w.records) == 1 {
		w.records[0].Settle(record.Acked)
		return
	}
	left := record.Remaining(w.records)
	w.GiveBack(left)
	if len(left) > 0 && !left[0].Ending() {
		w.src.cfg.Report(record.Report{
			Kind: record.ReportLeftUnsettled, Route: w.src.cfg.Route, Topic: left[0].Topic, Partition: left[0].Partition, Offset: left[0].Offset,
			Hint: "a message of several records was acknowledged but not all were settled; use MaxBatch 1 for handlers that do not know of record.Records",
		})
	}
}

// endSoft: begin nothing more.
func (w *work) endSoft() {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	w.ending = true
	close(w.soft)
	for _, wl := range w.lines {
		if !wl.over {
			wl.soften()
		}
	}
}

// endHard gives back what has not ended. A handler that still runs can settle nothing any more; its transaction decides.
func (w *work) endHard() {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	for _, wl := range w.lines {
		if !wl.over {
			w.endLine(wl, due{End: End{Key: wl.Key, Round: wl.Round, Settled: wl.settled(), Then: Return}})
		}
	}
}

// leave forgets a work that is finished.
func (w *work) leave() {
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	w.shut = true
	delete(w.src.works, w)
	w.src.queue = slices.DeleteFunc(w.src.queue, func(q *resume) bool { return q.work == w })
	w.src.grantLanes()
	w.src.nudge()
}
