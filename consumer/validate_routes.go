package consumer

import (
	"fmt"
	"strconv"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
)

// routesTogether finds what no route shows alone.
func routesTogether(specs []spec) []Problem {
	seen := map[string]string{}
	var ps []Problem
	for _, s := range specs {
		if topic, twice := seen[s.name]; twice && s.name != "" {
			ps = append(ps, Problem{
				What: fmt.Sprintf("two routes are named %q, on topics %q and %q", s.name, topic, s.topic),
				Fix:  "name them apart: the inbox would take the records of one for those of the other",
			})
		}
		seen[s.name] = s.topic
	}
	return append(append(ps, guards(specs)...), loops(specs)...)
}

// guards finds a flood guard that counts a partition's records of one route with those of another: what one settles would
// hide what dies in the other.
func guards(specs []spec) (ps []Problem) {
	for i, s := range specs {
		for _, other := range specs[:i] {
			if s.options.Flood != nil && s.options.Flood == other.options.Flood && s.topic == other.topic {
				ps = append(ps, Problem{
					What: fmt.Sprintf("routes %q and %q on topic %q have one Flood", other.name, s.name, s.topic),
					Fix:  "make each a guard of its own with middleware.NewFloodGuard",
				})
			}
		}
	}
	return ps
}

// loops finds routes whose dead letters come back to them, directly or by way of other routes: a record that always
// fails would go round for ever.
func loops(specs []spec) []Problem {
	var ps []Problem
	for _, s := range specs {
		if s.topic != "" && reaches(specs, s.options.DeadLetterTopic, s.topic, len(specs)) {
			ps = append(ps, Problem{
				What: fmt.Sprintf("the dead letters of route %q go to %q and from there back to its topic %q",
					s.name, s.options.DeadLetterTopic, s.topic),
				Fix: "give it a DeadLetterTopic that no route on the way consumes",
			})
		}
	}
	return ps
}

func reaches(specs []spec, from, to string, steps int) bool {
	if from == to {
		return true
	}
	if steps == 0 {
		return false
	}
	for _, s := range specs {
		if s.topic == from && reaches(specs, s.options.DeadLetterTopic, to, steps-1) {
			return true
		}
	}
	return false
}

func (s spec) problems(c Config) []Problem {
	of := fmt.Sprintf("route %q", s.name)
	var ps []Problem
	if s.name == "" {
		ps = append(ps, Problem{What: fmt.Sprintf("a route on topic %q has no Name", s.topic), Fix: fmt.Sprintf("set %s.Name, once and for ever: the inbox remembers by it", s.kind)})
	}
	ps = append(ps, misnamed("the Name of a route on topic "+strconv.Quote(s.topic), s.name)...)
	ps = append(ps, s.topicProblems(of)...)
	if s.work == nil {
		field := "Apply"
		if s.kind == queueRoute {
			field = "Queue"
		}
		fix := fmt.Sprintf("set %s.%s", s.kind, field)
		if s.call != nil {
			fix += ", or its Queue"
		}
		ps = append(ps, Problem{What: fmt.Sprintf("%s has no %s", of, field), Fix: fix})
	}
	ps = append(ps, s.callProblems(c, of)...)
	ps = append(ps, s.parkingProblems(of)...)
	o := s.options
	if o.Store > dedup.ByOffset {
		ps = append(ps, Problem{What: fmt.Sprintf("%s: Store is %s, which there is not", of, o.Store), Fix: "give dedup.ByID or dedup.ByOffset"})
	}
	ps = append(ps, nils(of, "Identity", len(o.Identity), func(i int) bool { return o.Identity[i] == nil })...)
	ps = append(ps, nils(of, "Middlewares", len(o.Middlewares), func(i int) bool { return o.Middlewares[i] == nil })...)
	ps = append(ps, nils(of, "Rules", len(o.Rules), func(i int) bool { return o.Rules[i] == nil })...)
	ps = append(ps, negatives(of, []Term{
		{"AttemptTimeout", s.options.AttemptTimeout},
		{"BackoffBase", s.options.BackoffBase},
		{"BackoffCap", s.options.BackoffCap},
	})...)
	ps = append(ps, s.normalProblems(of)...)
	ps = append(ps, outside(of, s.options.bounds())...)
	ps = append(ps, negativeCounts(of, []namedCount{
		{"Attempts", s.options.Attempts}, {"MaxBatch", s.options.MaxBatch}, {"Lanes", s.options.Lanes},
	})...)
	if s.options.BackoffBase > s.options.BackoffCap && s.options.BackoffCap > 0 {
		ps = append(ps, Problem{
			What: fmt.Sprintf("%s: BackoffBase %s is above BackoffCap %s", of, short(s.options.BackoffBase), short(s.options.BackoffCap)),
			Fix:  "lower BackoffBase or raise BackoffCap to " + short(s.options.BackoffBase),
		})
	}
	return ps
}

// normalProblems finds a NormalTime that no attempt has.
func (s spec) normalProblems(of string) []Problem {
	normal, most := s.options.NormalTime, add(s.callTimeout(), s.options.AttemptTimeout)
	switch {
	case normal == downstream.Measured:
		return nil
	case normal < 0:
		return negatives(of, []Term{{"NormalTime", normal}})
	case normal > 0 && normal > most:
		return []Problem{{
			What: fmt.Sprintf("%s: NormalTime %s is more than an attempt may take, %s: every budget would be too small for it", of, short(normal), short(most)),
			Fix:  "lower NormalTime to " + short(most) + ", or raise the timeouts",
		}}
	}
	return nil
}

// nils finds the members of a list that would panic with every record.
func nils(of, list string, n int, is func(i int) bool) []Problem {
	var ps []Problem
	for i := range n {
		if is(i) {
			ps = append(ps, Problem{What: fmt.Sprintf("%s: %s[%d] is nil", of, list, i), Fix: "give one, or leave it out"})
		}
	}
	return ps
}
