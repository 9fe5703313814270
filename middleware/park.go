package middleware

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// room is whether there is room in the route's parking, and who waits for it.
//
// Its gate is none of the route's Gates: those keep the scheduler and parking itself from beginning anything, and nobody
// but the records that want to park needs room. What is parked goes on, or there would never be any.
type room struct {
	gate *downstream.Gate

	mu      sync.Mutex
	waiting int
	since   time.Time // the first of them
}

func (m *room) enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting++; m.waiting == 1 {
		m.since = time.Now()
	}
}

func (m *room) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting--
}

// Full says that records wait for room in the route's parking, and since when.
func (rt *Route) Full() (since time.Time, full bool) {
	rt.room.mu.Lock()
	defer rt.room.mu.Unlock()
	return rt.room.since, rt.room.waiting > 0
}

// park puts the head into Postgres. Its followers find its key parked when they run, and join it there.
func (c *chain) park(r *record.Record, put func(ctx context.Context) error) bool {
	for try := 0; ; try++ {
		parked, ok := c.tryPark(put, try)
		switch {
		case !ok:
			return false
		case parked:
			r.Settle(record.Parked)
			return c.advance()
		}
	}
}

// tryPark parks once there may be room; parked is false at a limit of the policy, ok when the claim is ending.
func (c *chain) tryPark(put func(ctx context.Context) error, try int) (parked, ok bool) {
	pass, ok := c.roomPass()
	if !ok {
		return false, false
	}
	defer pass.Release()
	var full error
	ok = c.until(c.rt.Gates.Get(fault.Database), record.ReportParkingFailed, c.databaseDown, func(ctx context.Context) error {
		err := put(ctx)
		if full = nil; errors.Is(err, parking.ErrFull) {
			full, err = err, nil
		}
		return err
	})
	switch {
	case !ok:
		return false, false
	case full != nil:
		pass.FailedBecause(time.Time{}, c.rt.shown(c.head(), full))
		c.tell(try, record.ReportParkingFailed, full)
		return false, true
	}
	pass.OK()
	return true, true
}

// roomPass waits for room, in a hold. What parking has delivered has its place still.
func (c *chain) roomPass() (downstream.Pass, bool) {
	if c.head().Parked != nil {
		return downstream.Pass{}, true
	}
	if p, ok := c.rt.room.gate.TryEnter(); ok {
		return p, true
	}
	c.rt.room.enter()
	defer c.rt.room.leave()
	return c.passOf(c.rt.room.gate)
}

// failure is what parking remembers of the head's round.
func (c *chain) failure(r *record.Record) parking.Failure {
	return parking.Failure{At: time.Now(), Attempts: r.Attempts, Class: c.fault.Class.String(), Message: c.rt.text(r, r.Err)}
}
