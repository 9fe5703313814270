package middleware

import (
	"slices"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// holds are what a run of records waits for, free of charge: each from the first wait for it until it is there or the
// delivery is over. The tries in between are part of it: else whoever looked during one would see that nothing waits, and
// each that fails would be the end of one wait and the beginning of another.
type holds struct{ list []hold }

type hold struct {
	rt    *Route
	info  record.HoldInfo
	began time.Time
}

// reason is why records wait: what the first of them failed with, if it has, and what that means.
type reason struct {
	class string
	err   error
}

// on begins to wait for dependency, unless it is waited for already. why is asked only then.
func (h *holds) on(rt *Route, rs []*record.Record, dependency string, why func(dependency string) reason) {
	if rt.Hooks.OnHold == nil || h.has(dependency) {
		return
	}
	found := why(dependency)
	info := record.HoldInfo{
		Route: rt.Name, Dependency: dependency, Records: len(rs), Began: true,
		Class: found.class, Err: redact.Of(found.err, rt.RedactError),
	}
	h.list = append(h.list, hold{rt, info, time.Now()})
	rt.Hooks.OnHold(info)
}

// atGate is why records wait that have not failed: for what the gate that they met was shut.
func atGate(g *downstream.Gate) func(string) reason {
	return func(string) reason { return reason{err: g.Why()} }
}

func (h *holds) has(dependency string) bool {
	return slices.ContainsFunc(h.list, func(one hold) bool { return one.info.Dependency == dependency })
}

// only ends the waits for all but dependency: it is what a try came to, so the others let it through.
func (h *holds) only(dependency string) {
	h.endIf(true, func(name string) bool { return name != dependency })
}

// got ends the wait for dependency.
func (h *holds) got(dependency string) {
	h.endIf(true, func(name string) bool { return name == dependency })
}

// end ends all of them; done says that what was waited for is there.
func (h *holds) end(done bool) { h.endIf(done, func(string) bool { return true }) }

func (h *holds) endIf(done bool, which func(dependency string) bool) {
	h.list = slices.DeleteFunc(h.list, func(one hold) bool {
		if !which(one.info.Dependency) {
			return false
		}
		one.info.Began, one.info.Done, one.info.Took = false, done, time.Since(one.began)
		one.rt.Hooks.OnHold(one.info)
		return true
	})
}

// noteHold is told of each decision about the head.
func (c *chain) noteHold(d Decision) {
	switch {
	case d.Action == Hold:
		c.holding.only(d.Dependency)
		c.hold(d.Dependency, c.reason)
	case d.Action == GiveBack, d.Action == Again && !d.Charged, c.flooded == c.head(): // nothing learnt, or the guard decides
	default:
		c.holding.end(true)
	}
}

func (c *chain) hold(dependency string, why func(dependency string) reason) {
	c.holding.on(c.rt, c.rs, dependency, why)
}

// reason is why the chain waits for dependency: what its head failed with. One that was only refused knows no more than
// that; the one that had the breaker opened does.
func (c *chain) reason(dependency string) reason {
	r := c.head()
	is := reason{c.fault.Class.String(), c.rt.shown(r, r.Err)}
	if c.fault.Refused() {
		is.err = or(c.rt.Gates.why(dependency), is.err)
	}
	return is
}
