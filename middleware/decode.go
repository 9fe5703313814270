package middleware

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// DecodeError is a record whose identity or value cannot be read: a dead letter with reason undecodable.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "undecodable: " + e.Err.Error() }
func (e *DecodeError) Unwrap() error { return e.Err }

// Decode is the layer that gives each record its identity and its event, once a delivery and before anything can change
// its value. Bytes that cannot be read are data, not a stuck partition: those records fail for good, their neighbours go
// on. So is a decoder that panics on them.
//
// A record that was replayed becomes what it was when it died; one of another route's is settled as record.Foreign.
func Decode(rt *Route) message.HandlerMiddleware {
	return rt.layer(decodeLayer, func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			rs, err := record.Records(msg)
			if err != nil {
				return nil, err
			}
			good := rt.readable(rs)
			switch len(good) {
			case 0:
				return nil, nil
			case len(rs):
				return next(msg)
			}
			return next(record.Derive(msg, good))
		}
	})
}

// readable decodes rs and gives those that may run; rs itself if that is all.
func (rt *Route) readable(rs []*record.Record) []*record.Record {
	var (
		good   []*record.Record
		failed blocked // nil until something fails, which is nearly never
		fewer  bool    // good is not all of rs up to here
	)
	for i, r := range rs {
		may := rt.mayRun(r, &failed)
		switch {
		case may && fewer:
			good = append(good, r)
		case !may && !fewer:
			fewer = true
			good = append(make([]*record.Record, 0, len(rs)), rs[:i]...)
		}
	}
	if !fewer {
		return rs
	}
	return good
}

// mayRun decodes r. One that it settles, because it is no record of this route's, is nothing that others stay behind.
func (rt *Route) mayRun(r *record.Record, failed *blocked) bool {
	if r.Replay {
		if mine, err := rt.unwrap(r); !mine {
			rt.leave(r, err)
			return false
		}
	}
	if r.Err = failed.decode(rt, r); r.Err == nil {
		r.Err = convicted(r)
	}
	if r.Err == nil {
		return true
	}
	if *failed == nil {
		*failed = blocked{}
	}
	failed.add(r)
	return false
}

// convicted is for a parked record that takes its process down whenever it runs: it must not.
func convicted(r *record.Record) error {
	if t, ok := r.Parked.(*parking.Trial); ok && t.CrashLoop {
		return dedup.ErrCrashLoop
	}
	return nil
}

// blocked has the domains with a failure; true: of which nothing more may be looked at.
//
// A readable record behind an unreadable one comes after that one is dead, and so do all behind it. Unreadable ones in a
// row are all found now, so that a partition full of them does not take a pass each.
type blocked map[string]bool

func (b blocked) decode(rt *Route, r *record.Record) error {
	shut, failed := b[r.Domain()]
	if failed && shut {
		return record.ErrNotRun
	}
	if err := rt.decode(r); err != nil || !failed {
		return err
	}
	return record.ErrNotRun
}

func (b blocked) add(r *record.Record) {
	var unread *DecodeError
	if r.Domain() != "" {
		b[r.Domain()] = b[r.Domain()] || !errors.As(r.Err, &unread)
	}
}

// decode finds out once a delivery what r is. What it cannot read it remembers: its identity is its coordinates now, for
// the dead row, and under that it must never run.
func (rt *Route) decode(r *record.Record) error {
	if known, ok := r.Event.(unreadable); ok {
		return known.err
	}
	if r.Identity.ID != "" && (rt.Decode == nil || r.Event != nil) {
		return nil
	}
	// Resolvers and the decoder are the user's, and one that asks somebody may wait for ever: so it is running time of
	// this record, for the watchdog to see.
	r.Begin()
	defer r.End()
	if r.Identity.ID == "" {
		if err := rt.identify(r); err != nil {
			return remember(r, err)
		}
	}
	if rt.Decode == nil || r.Event != nil {
		return nil
	}
	return rt.event(r)
}

func remember(r *record.Record, err error) error {
	unread := &DecodeError{Err: err}
	r.Event = unreadable{unread}
	return unread
}

// skipped and unreadable are the events of records that no handler sees.
type (
	skipped    struct{ err error }
	unreadable struct{ err error }
)

// event calls the route's decoder. An error that says what it is stays as it is: a decoder that asks a schema registry
// may find it down, and healthy records must not die of that. Without a verb nothing counts as a hint, least of all that
// an end of the bytes looks like a lost connection.
func (rt *Route) event(r *record.Record) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = remember(r, fault.Recovered(p))
		}
	}()
	err = fault.Usable(rt.Decode(r))
	if _, skip := fault.AsSkip(err); skip {
		r.Event = skipped{err} // the inbox writes its row
		return nil
	}
	if err == nil || fault.Said(err) {
		return err
	}
	return remember(r, err)
}
