package claim

import (
	"slices"

	"github.com/headrace/headrace/record"
)

// What runs again does not take a lane from what is new, nor wait for one. A batch of which a fifth failed would have a
// lane for as long as any of its chains is at it, one after the other: two such batches and the keys that are healthy
// would stand still behind those that are not. And whoever waits for a lane beside 20 batches of chains has waited out
// its back-off many times over, with the watermark behind it. So they have room of their own, counted in records.

// resume is a call of Resume that waits for room.
type resume struct {
	batch *Batch
	seats []*seat
	ready chan struct{}
}

// Resume lets rs run again as soon as there is room beside the others that run again, first come first served.
func (l *Line) Resume(rs []*record.Record) bool {
	w := l.tryResume(rs)
	if w == nil {
		return false
	}
	select {
	case <-w.ready:
		return true
	case <-l.claim.soft:
		// What was granted meanwhile goes when the caller gives the records back.
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
	if w.batch == nil || l.claim.softened {
		return nil
	}
	l.resumes = append(l.resumes, w)
	l.grant()
	return w
}

// grant lets those run that wait longest, as far as there is room.
func (l *Line) grant() {
	for len(l.resumes) > 0 && l.fits(l.resumes[0]) {
		w := l.resumes[0]
		l.resumes[0] = nil
		l.resumes = l.resumes[1:]
		l.run(w)
	}
}

// fits says whether there is room for w: for as many records as all lanes carry.
func (l *Line) fits(w *resume) bool {
	return l.resumed == 0 || l.resumed+len(w.seats) <= l.cfg.Lanes*l.cfg.MaxBatch
}

// run sets the seats of w running. Those that were settled or given back while it waited stay so.
func (l *Line) run(w *resume) {
	for _, s := range w.seats {
		if s.batch == w.batch && s.state == waiting {
			s.state, s.resumed = running, true
			l.resumed++
		}
	}
	close(w.ready)
}
