package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/downstream"
)

// callProblems finds what is wrong with the calling part of a route.
func (s spec) callProblems(of string) []Problem {
	if s.call == nil {
		return nil
	}
	var ps []Problem
	if s.call.dependency == nil {
		ps = append(ps, Problem{
			What: of + " has no Dependency",
			Fix:  "make one with downstream.New and give it to every route that calls the same thing",
		})
	}
	if name := s.dependency(); slices.Contains(waits, name) || name == other {
		ps = append(ps, Problem{
			What: fmt.Sprintf("%s: its dependency is named %q, as something of ours is that records wait for", of, name),
			Fix:  "name it after what is called",
		})
	}
	if s.call.do == nil {
		ps = append(ps, Problem{What: of + " has no Call", Fix: "set CallRoute.Call, or use a Route, which calls nobody"})
	}
	ps = append(ps, s.call.repeat.problems(of)...)
	ps = append(ps, negatives(of, []Term{{"CallTimeout", s.call.timeout}})...)
	ps = append(ps, outside(of, []bound{{
		Term{"CallTimeout", s.call.timeout}, minAttemptTimeout, 0, "a call has a round trip to make",
	}})...)
	return append(ps, s.windowProblems(of)...)
}

func (r Repeat) problems(of string) []Problem {
	switch r {
	case RepeatKeyed, RepeatSafe:
		return nil
	case RepeatUnset:
		return []Problem{{
			What: of + " does not say why its call may be made again: after a crash or a lost answer nobody knows whether it was carried out",
			Fix: "set Repeat to RepeatKeyed, if the dependency carries out each Idempotency-Key once, or to RepeatSafe, " +
				"if the call changes nothing; a call that is neither cannot be made safely",
		}}
	default:
		return []Problem{{What: fmt.Sprintf("%s: Repeat is %d", of, r), Fix: "set it to RepeatKeyed or RepeatSafe"}}
	}
}

// windowProblems finds a breaker that forgets failures faster than a record makes them: it would never open.
func (s spec) windowProblems(of string) []Problem {
	if s.call.dependency == nil || s.call.timeout < 0 || s.options.BackoffBase < 0 || s.options.BackoffCap < 0 {
		return nil
	}
	window := s.call.dependency.Config().Breaker.Window
	counts := fmt.Sprintf("%s: the breaker of %q looks at the last %s (BreakerConfig.Window)", of, s.call.dependency.Name(), short(window))
	var ps []Problem
	if need := times(s.call.timeout, 2); window < need {
		ps = append(ps, Problem{
			What: fmt.Sprintf("%s, less than 2 x CallTimeout %s = %s: calls that time out would fall out of it before it can open",
				counts, short(s.call.timeout), short(need)),
			Fix: raiseWindow(need, "CallTimeout", window/2),
		})
	}
	if waits := s.budget(Config{}).backoffs(s.options.Attempts); window <= waits {
		ps = append(ps, Problem{
			What: fmt.Sprintf("%s, no more than the %d back-offs of one record, %s: its failures would never be seen together",
				counts, s.options.Attempts-1, short(waits)),
			Fix: raiseWindow(waits+time.Second, "BackoffCap", (window-1)/time.Duration(max(s.options.Attempts-1, 1))),
		})
	}
	return ps
}

// raiseWindow is the fix, and the other one where there is one.
func raiseWindow(to time.Duration, field string, lower time.Duration) string {
	raise := "raise Window to " + short(to)
	if lower = roundDown(lower); lower < minAttemptTimeout {
		return raise
	}
	return fmt.Sprintf("%s, or lower %s to %s", raise, field, short(lower))
}

// dependenciesApart finds two dependencies of one name. What one of them learns the other would not know, and metrics,
// logs and holds could not tell them apart.
func dependenciesApart(specs []spec) []Problem {
	type user struct {
		dependency *downstream.Dependency
		route      string
	}
	first := map[string]user{}
	var ps []Problem
	for _, s := range specs {
		if s.call == nil || s.call.dependency == nil {
			continue
		}
		d := s.call.dependency
		was, known := first[d.Name()]
		switch {
		case !known:
			first[d.Name()] = user{d, s.name}
		case was.dependency != d:
			ps = append(ps, Problem{
				What: fmt.Sprintf("routes %q and %q have two different dependencies named %q", was.route, s.name, d.Name()),
				Fix:  "give both routes the same *downstream.Dependency, or name the dependencies apart",
			})
		}
	}
	return ps
}
