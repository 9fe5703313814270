package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/downstream"
)

// outgoing is the sum of what a route's Call asks, which must fit into the time that the call has: a child with more time
// than its parent is cut off by it, with nobody left who could act on it.
func (s spec) outgoing() (Sum, bool) {
	if s.call == nil || len(s.call.calls) == 0 {
		return Sum{}, false
	}
	sum := Sum{Of: fmt.Sprintf("calls of route %q", s.name), Limit: Term{"CallTimeout", s.call.timeout}}
	for _, o := range s.call.calls {
		name := "?"
		if made(o.Dependency) {
			name = o.Dependency.Name()
		}
		term := Term{fmt.Sprintf("Budget of %q", name), o.Budget}
		sum.Terms = append(sum.Terms, term)
		sum.levers = append(sum.levers, duration(term.Name, term.Took, 1))
	}
	if s.call.reserve > 0 {
		sum.Terms = append(sum.Terms, Term{"CallReserve", s.call.reserve})
		sum.levers = append(sum.levers, duration("CallReserve", s.call.reserve, 1))
	}
	return sum, true
}

// sharing gives the contexts of a route's calls what they declare.
func sharing(calls []Outgoing, reserve time.Duration) func(context.Context) context.Context {
	if len(calls) == 0 {
		return func(ctx context.Context) context.Context { return ctx }
	}
	most := make(map[*downstream.Dependency]time.Duration, len(calls))
	for _, o := range calls {
		most[o.Dependency] = max(most[o.Dependency], o.Budget)
	}
	return func(ctx context.Context) context.Context { return downstream.WithShares(ctx, most, reserve) }
}

// made says that downstream.New made d.
func made(d *downstream.Dependency) bool { return d != nil && d.Name() != "" }

func (c *calling) outgoingProblems(of string) []Problem {
	ps := negatives(of, []Term{{"CallReserve", c.reserve}})
	for i, o := range c.calls {
		what := fmt.Sprintf("%s: Calls[%d]", of, i)
		if !made(o.Dependency) {
			ps = append(ps, Problem{What: what + " has no Dependency", Fix: "name what is called, as downstream.New made it"})
			continue
		}
		if o.Budget <= 0 {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s, to %q, has the Budget %s", what, o.Dependency.Name(), short(o.Budget)),
				Fix:  "give the most that the call takes",
			})
		}
		if normal := o.Dependency.Config().NormalTime; o.Budget > 0 && o.Budget < normal {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s, to %q, has the Budget %s, less than the %s that such a call normally takes (NormalTime)",
					what, o.Dependency.Name(), short(o.Budget), short(normal)),
				Fix: fmt.Sprintf("raise the Budget to %s: what is cut short may have been carried out", short(normal)),
			})
		}
		if window := o.Dependency.Config().Breaker.Window; window < times(o.Budget, 2) {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s: the breaker of %q looks at the last %s (Breaker.Window), less than 2 x Budget %s = %s: calls that "+
					"time out would fall out of it before it can open", what, o.Dependency.Name(), short(window), short(o.Budget), short(times(o.Budget, 2))),
				Fix: fmt.Sprintf("raise Breaker.Window to %s, or lower the Budget to %s", short(times(o.Budget, 2)), short(roundDown(window/2))),
			})
		}
	}
	if c.declares() || len(c.calls) == 0 || !made(c.dependency) {
		return ps
	}
	return append(ps, Problem{
		What: fmt.Sprintf("%s: Calls leave out %q, its Dependency", of, c.dependency.Name()), Fix: "declare all calls, or none",
	})
}

// declares says that the calls name the route's own dependency.
func (c *calling) declares() bool {
	return slices.ContainsFunc(c.calls, func(o Outgoing) bool { return o.Dependency == c.dependency })
}

func (c *calling) reconcileProblems(of string) []Problem {
	switch {
	case c.repeat == RepeatReconciled && !c.reconciles:
		return []Problem{{
			What: of + " has RepeatReconciled and no Reconcile: nobody could be asked whether the call was carried out",
			Fix:  "set CallRoute.Reconcile",
		}}
	case c.repeat != RepeatReconciled && c.repeat != RepeatUnset && c.reconciles:
		return []Problem{{What: of + " has a Reconcile that its Repeat makes no use of", Fix: "set Repeat to RepeatReconciled, or leave Reconcile out"}}
	}
	return nil
}

// keyProblems finds dependencies that forget an idempotency key before the record that carries it can come for the last
// time: a call that is made again then is carried out again.
func (c *Consumer) keyProblems(found topics) []Problem {
	var ps []Problem
	for _, s := range c.specs {
		if s.call == nil || s.call.repeat != RepeatKeyed || !made(s.call.dependency) {
			continue
		}
		kept := s.call.dependency.Config().KeyRetention
		if kept <= 0 {
			continue // not known
		}
		if sum, late := addUp(c.callings(s, found)); late < 0 || late > kept {
			fix := "shorten the retention.ms of what keeps them"
			if s.parks() {
				fix += " or lower Park.MaxAge"
			}
			ps = append(ps, Problem{
				What: fmt.Sprintf("route %q: %q remembers an idempotency key for %s (KeyRetention), and a record can come again as late after its "+
					"first call as %s: it would be called for, and carried out, again", s.name, s.call.dependency.Name(), short(kept), sum),
				Fix: fmt.Sprintf("have the dependency keep keys for %s and raise KeyRetention, or %s", forever(late), fix),
			})
		}
	}
	return ps
}

// addUp is the sum of what follows one after the other, and how it comes about.
func addUp(ks []keeping) (sum string, total time.Duration) {
	terms := make([]string, len(ks))
	for i, k := range ks {
		terms[i] = fmt.Sprintf("%s %s", k.what, forever(k.kept))
		total = together(total, k.kept)
	}
	return strings.Join(terms, " + ") + " = " + forever(total), total
}
