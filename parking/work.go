package parking

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/record"
)

const (
	// returnDelay is how long what was given back waits, unless the Source is ending.
	returnDelay = time.Second
	// unreadDelay is how long a record waits whose row cannot be read: for a newer build, or an operator.
	unreadDelay = 15 * time.Minute
	// finishTimeout bounds each statement for a lease, and firstRetry and lastRetry the waits between tries.
	finishTimeout = 5 * time.Second
	firstRetry    = 50 * time.Millisecond
	lastRetry     = 2 * time.Second
)

// Trial is what parking knows of a record that it delivers (record.Record.Parked).
type Trial struct {
	// Round is how often the record has failed before, 0 for one that was never tried.
	Round int
	// Last says that it has no further round, or is being tried for MaxAge: if it fails now, it is dead.
	Last bool
	// CrashLoop says that it has taken down its process so often that it must not run again.
	CrashLoop bool
	// History is how its rounds ended, and ParkedAt since when it is parked.
	History  History
	ParkedAt time.Time
}

// work is one message: a lease, the records that were loaded for it, and what becomes of them.
//
//	handed out ─► running ◄──► waiting ─► settled ─┐
//	                 └───────────┴──────► returned ┴─► all of a line: its end is due ─► Finish
//
// It owns its records. All but the lease is guarded by the Source's lock; the lease belongs to keep's goroutine.
type work struct {
	src     *Source
	lease   *Lease
	suspect bool
	records []*record.Record
	soft    chan struct{} // closed: begin nothing more
	changed chan struct{} // one token: an end is due

	lines   map[int64]*workLine
	running int // seats; the lane is free at 0
	left    int // lines that are not finished
	ending  bool
	shut    bool // nothing moves any more
	ends    []due
}

// workLine is one key of a work.
type workLine struct {
	*Line

	seats []*seat
	open  int           // neither settled nor returned
	soft  chan struct{} // closed when softened: those behind its head begin nothing more
	over  bool          // its end is due, or it is lost
	held  bool          // its head is dead, and what is behind it stays

	softened bool
}

func (wl *workLine) soften() {
	if !wl.softened {
		wl.softened = true
		close(wl.soft)
	}
}

// due is an end that is to be written; done, if any, is told.
type due struct {
	End

	done chan error
}

func newWork(s *Source, l *Lease, suspect bool) *work {
	return &work{
		src: s, lease: l, suspect: suspect, soft: make(chan struct{}), changed: make(chan struct{}, 1),
		lines: make(map[int64]*workLine, len(l.Lines)),
	}
}

// add takes a line's records up, as far as they can be read; false and how to leave the line if the first one cannot.
func (w *work) add(line *Line) (End, bool) {
	wl := &workLine{Line: line, soft: make(chan struct{})}
	for i, p := range line.Records {
		if p.Err != nil {
			w.src.cfg.Report(record.Report{
				Kind: record.ReportParkingFailed, Route: w.src.cfg.Route, Topic: p.TopicID.String(), Partition: p.Partition, Offset: p.Offset, Err: p.Err,
				Hint: "its row in headrace.parked_records stays, and its key waits, until a build can read it",
			})
			break
		}
		wl.seats = append(wl.seats, w.seat(wl, i, p))
	}
	if len(wl.seats) == 0 {
		delay := unreadDelay
		if len(line.Records) == 0 { // there was no room for it
			delay = 0
		}
		return End{Key: line.Key, Then: Return, Delay: delay}, false
	}
	w.lines[line.Key] = wl
	w.left++
	wl.open = len(wl.seats)
	return End{}, true
}

// seat makes the delivery of a record. A head ends with the message; what is behind it ends with its line too: when its
// head is parked again, it must not run.
func (w *work) seat(wl *workLine, i int, p *Parked) *seat {
	r, soft := p.Record, wl.soft
	round, policy := 0, w.src.store.policy
	if i == 0 {
		soft, round = w.soft, wl.Round
	}
	st := &seat{work: w, line: wl, parked: p}
	r.Seat = st
	r.Parked = &Trial{
		Round: round, Last: round >= policy.Rounds || p.age() >= policy.MaxAge, CrashLoop: i == 0 && wl.CrashLoop(),
		History: p.History, ParkedAt: p.ParkedAt,
	}
	r.Bind(w, soft, domain(wl.Key))
	w.records = append(w.records, r)
	w.running++
	return st
}

// keep renews the lease and writes ends, until all lines are finished. ctx is the subscription's, cancel the message's.
func (w *work) keep(ctx context.Context, msg *message.Message, cancel context.CancelCauseFunc) {
	defer w.leave()
	renew := time.NewTicker(w.src.store.policy.Lease / 3)
	defer renew.Stop()
	acked, nacked, stopping := msg.Acked(), msg.Nacked(), ctx.Done()
	var grace <-chan time.Time
	hard := false
	for w.flush(ctx.Done()) {
		select {
		case <-w.changed:
		case <-renew.C:
			w.renew() //nolint:contextcheck // a lease outlives its subscription, for as long as its handlers run
		case <-acked:
			acked = nil
			w.acked()
		case <-nacked:
			nacked = nil
			w.GiveBack(w.records)
		case <-stopping:
			stopping = nil
			w.endSoft()
			grace = time.After(w.src.cfg.DrainGrace)
		case <-grace:
			cancel(record.ErrStopping)
			if hard {
				w.endHard()
				continue
			}
			hard, grace = true, time.After(w.src.cfg.HardGrace)
		}
	}
}

// flush writes the ends that are due; false when every line is finished.
func (w *work) flush(ending <-chan struct{}) bool {
	for {
		w.src.mu.Lock()
		ends, left := w.ends, w.left
		w.ends = nil
		w.src.mu.Unlock()
		if len(ends) == 0 {
			return left > 0
		}
		w.write(ends, ending)
	}
}

// write tries for as long as anybody else waits for the lease to run out, once the subscription is ending for the hard
// grace at most. Then it is owed: by a lease of its own, since whoever pays is not keep's goroutine, which goes on with what
// is open.
func (w *work) write(ends []due, ending <-chan struct{}) {
	list := make([]End, len(ends))
	for i := range ends {
		list[i] = ends[i].End
	}
	patience := time.After(w.src.store.policy.Lease)
	var err error
	over := false
	for wait := firstRetry; !over; wait = min(2*wait, lastRetry) {
		ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
		_, err = w.lease.Finish(ctx, list)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-time.After(wait):
		case <-ending:
			ending, patience = nil, time.After(min(w.src.cfg.HardGrace, w.src.store.policy.Lease))
		case <-patience:
			over = true
		}
	}
	if err != nil {
		owed := w.lease.part(list)
		w.src.owe(func(ctx context.Context) error { return owed.finishLate(ctx, list) })
	}
	w.src.mu.Lock()
	w.left -= len(ends)
	w.src.mu.Unlock()
	for _, d := range ends {
		if d.done != nil {
			d.done <- err
		}
	}
}

// renew goes on with the lease, and forgets the lines that it has lost. An error costs nothing yet: there are two more
// renewals in a lease.
func (w *work) renew() {
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	lost, err := w.lease.Renew(ctx)
	if err != nil {
		return
	}
	w.src.mu.Lock()
	defer w.src.mu.Unlock()
	if len(w.src.debts) > 0 { // the database is back, and what is owed is not renewed
		w.src.nudge()
	}
	for _, line := range lost {
		if wl := w.lines[line.Key]; wl != nil && !wl.over {
			w.close(wl)
			w.left--
		}
	}
}
