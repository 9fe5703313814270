package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/downstream"
)

// callProblems finds what is wrong with the calling part of a route.
func (s spec) callProblems(c Config, of string) []Problem {
	if s.call == nil {
		return nil
	}
	var ps []Problem
	ps = append(ps, s.dependencyProblems(of)...)
	if s.call.do == nil {
		ps = append(ps, Problem{What: of + " has no Call", Fix: "set CallRoute.Call, or use a Route, which calls nobody"})
	}
	if s.call.both {
		ps = append(ps, Problem{What: of + " has both Apply and Queue", Fix: "set one of them: they would write the same"})
	}
	ps = append(ps, s.call.repeat.problems(of)...)
	ps = append(ps, s.call.reconcileProblems(of)...)
	ps = append(ps, s.call.outgoingProblems(of)...)
	ps = append(ps, negatives(of, []Term{{"CallTimeout", s.call.timeout}})...)
	ps = append(ps, outside(of, []bound{{
		Term{"CallTimeout", s.call.timeout}, minAttemptTimeout, 0, "a call has a round trip to make",
	}})...)
	return append(ps, s.windowProblems(c, of)...)
}

func (s spec) dependencyProblems(of string) []Problem {
	const fix = "make one with downstream.New and give it to every route that calls the same thing"
	switch name := s.dependency(); {
	case s.call.dependency == nil:
		return []Problem{{What: of + " has no Dependency", Fix: fix}}
	case name == "":
		return []Problem{{What: of + " has a Dependency that was not made with downstream.New", Fix: fix}}
	case slices.Contains(waits, name) || name == other:
		return []Problem{{
			What: fmt.Sprintf("%s: its dependency is named %q, as something of ours is that records wait for", of, name),
			Fix:  "name it after what is called",
		}}
	}
	return nil
}

// window is what the breaker of the route's dependency looks at, 0 without one: New of package downstream leaves none
// without a name.
func (s spec) window() time.Duration {
	if s.dependency() == "" {
		return 0
	}
	return s.call.dependency.Config().Breaker.Window
}

func (r Repeat) problems(of string) []Problem {
	switch r {
	case RepeatKeyed, RepeatSafe, RepeatReconciled:
		return nil
	case RepeatUnset:
		return []Problem{{
			What: of + " does not say why its call may be made again: after a crash or a lost answer nobody knows whether it was carried out",
			Fix: "set Repeat to RepeatKeyed, if the dependency carries out each Idempotency-Key once, to RepeatSafe, " +
				"if the call changes nothing, or to RepeatReconciled, if it can be asked; a call that is none of them cannot be made safely",
		}}
	default:
		return []Problem{{What: fmt.Sprintf("%s: Repeat is %d", of, r), Fix: "set it to RepeatKeyed, RepeatSafe or RepeatReconciled"}}
	}
}

// windowProblems finds a breaker that forgets failures faster than a record makes them: it would never open.
func (s spec) windowProblems(c Config, of string) []Problem {
	window := s.window()
	if window == 0 || s.call.timeout < 0 || s.options.BackoffBase < 0 || s.options.BackoffCap < 0 {
		return nil
	}
	b := s.budget(c)
	counts := fmt.Sprintf("%s: the breaker of %q looks at the last %s (Breaker.Window)", of, s.call.dependency.Name(), short(window))
	var ps []Problem
	if need := times(s.call.timeout, 2); window < need {
		ps = append(ps, Problem{
			What: fmt.Sprintf("%s, less than 2 x CallTimeout %s = %s: calls that time out would fall out of it before it can open",
				counts, short(s.call.timeout), short(need)),
			Fix: raiseWindow(need, "CallTimeout", b.longestCall(b.sum().over())),
		})
	}
	if waits := b.backoffs(s.options.Attempts); window <= waits {
		longest := roundDown((window - 1) / time.Duration(max(s.options.Attempts-1, 1)))
		fields := "BackoffCap"
		if longest < s.options.BackoffBase {
			fields = "BackoffBase and BackoffCap"
		}
		ps = append(ps, Problem{
			What: fmt.Sprintf("%s, no more than the %d back-offs of one record, %s: its failures would never be seen together",
				counts, s.options.Attempts-1, short(waits)),
			Fix: raiseWindow(waits+time.Second, fields, longest),
		})
	}
	return ps
}

// raiseWindow is the fix, and the other one where there is one.
func raiseWindow(to time.Duration, field string, lower time.Duration) string {
	raise := "raise Breaker.Window to " + short(to)
	if lower < minAttemptTimeout {
		return raise
	}
	return fmt.Sprintf("%s, or lower %s to %s", raise, field, short(lower))
}

// dependenciesApart finds two dependencies of one name. What one of them learns the other would not know, and metrics,
// logs and holds could not tell them apart.
func dependenciesApart(specs []spec, others []*downstream.Dependency) []Problem {
	type user struct {
		dependency *downstream.Dependency
		route      string
	}
	first := map[string]user{}
	var ps []Problem
	meet := func(route string, d *downstream.Dependency) {
		if d == nil || d.Name() == "" {
			return
		}
		was, known := first[d.Name()]
		switch {
		case !known:
			first[d.Name()] = user{d, route}
		case was.dependency != d:
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s and %s have two different dependencies named %q", was.route, route, d.Name()),
				Fix:  "give both the same *downstream.Dependency, or name the dependencies apart",
			})
		}
	}
	for _, s := range specs {
		if s.call == nil {
			continue
		}
		meet(fmt.Sprintf("route %q", s.name), s.call.dependency)
		for _, o := range s.call.calls {
			meet(fmt.Sprintf("route %q", s.name), o.Dependency)
		}
	}
	for _, d := range others {
		meet("Config.Dependencies", d)
	}
	return ps
}
