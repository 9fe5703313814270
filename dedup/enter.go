package dedup

import (
	"context"
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// Enter guards one call out that is made for r outside of a transaction, and may take the process down as a handler may:
// a suspect runs alone in this process, with a durable mark; others share. It waits for those that run already, calls
// and handlers of any route, so take it last, when nothing else is to be waited for.
//
// leave must be called when the call has returned, also after it was given up. A call that has not returned within
// RouteConfig.CallTimeout and Config.HardGrace holds up nobody any more; it is in Inbox.Stuck until then, and if it is a
// suspect its mark stands.
//
// The error is fault.Permanent with ErrCrashLoop for a record that is convicted, fault.Busy when a member that may live
// has it marked, fault.Unavailable when the database is away, record.ErrNotRun when its delivery is ending, or the cause
// of ctx. Then nothing is to be left.
func (rt *Route) Enter(ctx context.Context, r *record.Record) (leave func(), err error) {
	v := &visit{rt: rt, r: r}
	suspect := rt.suspects.has(r)
	if err := v.takeTurn(ctx, suspect); err != nil {
		return nil, err
	}
	if suspect {
		// Not cut short by ctx: then nobody would know whether it stands.
		if v.marked, err = rt.suspects.mark(context.WithoutCancel(ctx), r); err != nil {
			v.turn.leave()
			return nil, err
		}
	}
	v.since = time.Now()
	v.patience = time.AfterFunc(rt.cfg.CallTimeout+rt.in.cfg.HardGrace, v.overdue)
	return v.leave, nil
}

// visit is one call between Enter and leave.
type visit struct {
	rt       *Route
	r        *record.Record
	turn     turn
	marked   bool
	since    time.Time
	patience *time.Timer

	mu   sync.Mutex
	left bool
}

func (v *visit) takeTurn(ctx context.Context, suspect bool) error {
	weight := int64(1)
	if suspect {
		weight = everybody
	}
	if v.turn.tryTake(v.rt.in.turns, weight) {
		return nil
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-v.r.Soft():
			cancel()
		case <-wait.Done():
		}
	}()
	switch {
	case v.turn.take(wait, v.rt.in.turns, weight):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return record.ErrNotRun
}

// overdue gives the turn of a call up that has not returned. Stuck first: who gets the turn looks there.
func (v *visit) overdue() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.left {
		v.rt.in.stuck.add(v, v.rt, v.r, v.since)
		v.turn.leave()
	}
}

func (v *visit) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left {
		return
	}
	v.left = true
	v.patience.Stop()
	if v.marked {
		v.rt.suspects.unmark(v.r)
	}
	v.rt.in.stuck.remove(v)
	v.turn.leave()
}
