package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// workGrouped has one call of the handler for all fresh records of the group. When that fails, those that are named are
// left out; when nobody is named, the records are halved, in the same transaction, until those are found that fail alone.
// The savepoint moves behind each part that went through.
func (g *group) workGrouped() verdict {
	var set []*entry
	for e := g.up(); e != nil; e = g.up() {
		set = append(set, e)
	}
	if g.gone.Load() {
		return ended
	}
	v := g.solveApart(set)
	if v == cutOff {
		return kept
	}
	return v
}

// solveApart has another call for those that are likely to fail.
func (g *group) solveApart(set []*entry) verdict {
	firm := firmOf(set)
	if v := g.solve(set[:firm]); v != kept {
		return v
	}
	return g.solve(set[firm:])
}

// solve has the handler called for set, in order, until each has its verdict or the group ends: kept to go on, cutOff to
// commit what is done, any other verdict ends it without.
func (g *group) solve(set []*entry) verdict {
	for {
		if set = g.standing(set); len(set) == 0 {
			return kept
		}
		if g.decided() && time.Since(g.ran) > g.rt.in.cfg.MaxBatchTime {
			return cutOff // the rest comes in the next group
		}
		if len(g.done) > g.mark && !g.advance() {
			return g.unanswered()
		}
		v, err := g.attemptAll(set)
		if v = g.followAll(set, v, err); v == doubted {
			continue
		}
		if v != undone {
			return v
		}
		named, err := membersOf(set, err)
		switch {
		case named != nil:
			g.leaveOut(set, named)
		case len(set) == 1:
			set[0].cause = err
			g.charge(set[0], undone)
		case g.ofAll(set, err):
		case set[0].frail:
			return g.solveFrail(set)
		default:
			half := len(set) / 2
			if v := g.solve(set[:half]); v != kept {
				return v
			}
			set = set[half:]
		}
	}
}

// solveFrail does not halve: most of set are expected to fail. Each is alone, and those behind one that does not are twice as
// many.
func (g *group) solveFrail(set []*entry) verdict {
	for n := 1; len(set) > 0; {
		n = min(n, len(set))
		part := slices.Clone(set[:n])
		if v := g.solve(set[:n]); v != kept {
			return v
		}
		set = set[n:]
		if n *= 2; slices.ContainsFunc(part, func(e *entry) bool { return e.mode == failing }) {
			n = 1
		}
	}
	return kept
}

// decided says that the group has got somewhere: what is left may wait for the next.
func (g *group) decided() bool {
	return len(g.done) > 0 || len(g.failed) > 0 || slices.ContainsFunc(g.todo, func(e *entry) bool { return e.mode != waiting })
}

// unanswered is for a savepoint that did not move: a handler may have ended the transaction through tx.Conn.
func (g *group) unanswered() verdict {
	if !g.unsaved {
		return g.blame(g.alone())
	}
	first := g.done[g.mark]
	for _, e := range g.done[g.mark:] {
		e.mode = waiting
	}
	return g.escape(first)
}

// attemptAll runs the handler once and judges what it left. The error is what it came to.
func (g *group) attemptAll(set []*entry) (verdict, error) {
	start := time.Now()
	a := newAttempt(set[0].c.ctx, start.Add(g.rt.cfg.AttemptTimeout))
	a.root.inner, a.scope.texts, a.scope.anew = g.tx, &g.w.texts, g.anew
	rs := make([]*record.Record, len(set))
	for i, e := range set {
		e.since = start
		e.r.BeginAt(start)
		rs[i] = e.r
	}
	g.w.begin(g, a, set...)
	err := g.callAll(a, set[0].c.work.(Batch), rs)
	left := a.scope.close() // under the attempt's clock: the server may have gone silent
	if !g.w.end(a) {
		return abandoned, nil
	}
	expired := errors.Is(a.Err(), errAttempt)
	took := time.Since(start)
	for _, e := range set {
		e.r.End()
		e.took, e.deferred = took/time.Duration(len(set)), nil
	}
	set[0].deferred = a.scope.deferred // they are done together, or not at all
	f := g.look(set[0], a, err, left)
	f.expired, f.over = expired, g.gone.Load()
	if named, ok := fault.AsMembers(f.err); ok && f.status == 'E' && isConflict(a.scope.failed) && len(named) > 0 {
		f.err = a.scope.failed // whom it names is not at fault
	}
	set[0].touched, set[0].raw = f.sql, a.scope.raw
	v := g.verify(judge(f), a)
	a.end(context.Canceled)
	return g.doubt(v, a.scope.doubtOf(f.err), g.anew, set...), f.err
}

func (g *group) callAll(a *attempt, work Batch, rs []*record.Record) (err error) {
	ctx := context.Context(a)
	if around := g.rt.cfg.Around; around != nil {
		var finished []func(error)
		ctx, finished = aroundAll(around, a, rs)
		defer func() {
			for i, f := range finished {
				f(memberErr(err, i))
			}
		}()
	}
	return protected(func() error {
		err := work(ctx, &a.root, rs)
		if named, ok := fault.AsMembers(err); ok {
			failed := named.Failed()
			for _, i := range failed {
				_ = fault.Usable(named[i])
			}
			if len(failed) == 0 {
				return nil
			}
		}
		return err
	})
}

// aroundAll begins what is around each of rs. The context is the first one's: there is one call.
func aroundAll(
	around func(context.Context, *record.Record) (context.Context, func(error)), a *attempt, rs []*record.Record,
) (context.Context, []func(error)) {
	finished := make([]func(error), len(rs))
	var ctx context.Context
	ctx, finished[0] = around(a, rs[0])
	for i, r := range rs[1:] {
		_, finished[i+1] = around(a, r)
	}
	return ctx, finished
}

// memberErr is what err says about the i-th record.
func memberErr(err error, i int) error {
	if named, ok := fault.AsMembers(err); ok {
		return named[i]
	}
	return err
}

// followAll does to the transaction what the verdict about all of set says. undone: it is as if the handler had not run,
// and whose failure it was is to be found.
func (g *group) followAll(set []*entry, v verdict, err error) verdict {
	switch v {
	case kept:
		g.passed(set)
		if set[0].raw && !g.advance() {
			return g.unanswered()
		}
		return kept
	case skipped:
		for _, e := range set {
			e.mode, e.cause = skipping, err
			g.charge(e, skipped)
		}
		return g.undoAll(set, kept)
	case leftOut, undone:
		return g.undoAll(set, undone)
	case doubted:
		g.anew = true
		return g.undoAll(set, doubted)
	case cutOff:
		return g.overtime(set, err)
	case collided:
		return g.collideAll(set, err)
	case lost:
		return g.blame(g.alone())
	case escaped:
		return g.escape(set[0])
	case brokeOff:
		return g.brokenOff(set, err)
	case ended, renewed, abandoned, sealed:
		return v
	}
	return v
}

// undoAll goes back to the savepoint, which stands right before set, and gives v.
func (g *group) undoAll(set []*entry, v verdict) verdict {
	if set[0].touched && !g.exec(toSavepoint) {
		return g.blame(nil)
	}
	return v
}

// overtime is for a call whose time was up. In company it says nothing about any of them: each is alone next time.
func (g *group) overtime(set []*entry, err error) verdict {
	if len(set) > 1 {
		g.separateAll(set)
		g.late = true
		return g.keepDone(lost)
	}
	set[0].cause = err
	g.charge(set[0], cutOff)
	return g.keepDone(lost)
}

// brokenOff is for a call that left the connection unusable.
func (g *group) brokenOff(set []*entry, err error) verdict {
	if len(set) > 1 {
		g.separateAll(set)
		_ = g.conn.Conn().PgConn().Conn().Close()
		return brokeOff
	}
	set[0].cause = err
	g.charge(set[0], brokeOff)
	return brokeOff
}

// separateAll is separate for a part of the group.
func (g *group) separateAll(set []*entry) {
	for _, e := range set {
		e.solo = true
	}
}

var errIndex = errors.New("handler named a member that it was not given")

// membersOf gives whom err names. An index that is out of range is the handler's bug, and the error then is about all.
func membersOf(set []*entry, err error) (fault.Members, error) {
	named, ok := fault.AsMembers(err)
	if !ok {
		return nil, err
	}
	for _, i := range named.Failed() {
		if i < 0 || i >= len(set) {
			return nil, fmt.Errorf("%w: %d of %d (%w)", errIndex, i, len(set), err)
		}
	}
	return named, err
}

// leaveOut gives those that are named their verdicts.
func (g *group) leaveOut(set []*entry, named fault.Members) {
	for _, i := range named.Failed() {
		e := set[i]
		e.cause = named[i]
		if _, skip := fault.AsSkip(e.cause); skip {
			e.mode = skipping
			g.charge(e, skipped)
			continue
		}
		g.charge(e, undone)
	}
}

// ofAll gives all of set a verdict that says nothing about any of them, and is false for one that may.
func (g *group) ofAll(set []*entry, err error) bool {
	class, meant := ofHandler(set[0].c.ctx, g.rt.cfg.Classifier, err, undone)
	switch class {
	case fault.ClassUnavailable, fault.ClassCancelled:
	case fault.ClassPermanent, fault.ClassTransient, fault.ClassAmbiguous, fault.ClassBusy:
		return false
	}
	for _, e := range set {
		e.cause = err
		g.fail(e, meant)
		g.rt.in.attempted(g.rt, e, class.String())
	}
	return true
}
