package consumer

import (
	"fmt"
	"strconv"
)

// validate finds everything that the configuration alone shows to be wrong, budgets included.
func validate(c Config, specs []spec) []Problem {
	var ps []Problem
	ps = append(ps, c.missing()...)
	ps = append(ps, c.dependencyProblems()...)
	ps = append(ps, dependenciesApart(specs, c.Dependencies)...)
	ps = append(ps, c.relations(specs)...)
	ps = append(ps, outside("Config", c.bounds())...)
	ps = append(ps, routesTogether(specs)...)
	ps = append(ps, c.replayNames(specs)...)
	for _, s := range specs {
		ps = append(ps, s.problems(c)...)
	}
	return append(ps, plan(c, specs).problems()...)
}

// plan is every sum that must fit.
func plan(c Config, specs []spec) Plan {
	p := make(Plan, 0, len(specs)+1)
	for _, s := range specs {
		p = append(p, s.budget(c).sum())
		if sum, declared := s.outgoing(); declared {
			p = append(p, sum)
		}
	}
	return append(p, c.rebalance().sum())
}

func (p Plan) problems() []Problem {
	var ps []Problem
	for _, s := range p {
		if !s.Fits() {
			ps = append(ps, Problem{What: s.table(), Fix: s.Fix()})
		}
	}
	return ps
}

type namedCount struct {
	name  string
	value int
}

func negativeCounts(of string, counts []namedCount) []Problem {
	var ps []Problem
	for _, n := range counts {
		if n.value < 0 {
			ps = append(ps, negative(of, n.name, strconv.Itoa(n.value), "number"))
		}
	}
	return ps
}

func negatives(of string, ds []Term) []Problem {
	var ps []Problem
	for _, d := range ds {
		if d.Took < 0 {
			ps = append(ps, negative(of, d.Name, short(d.Took), "duration"))
		}
	}
	return ps
}

func negative(of, name, value, sort string) Problem {
	return Problem{What: fmt.Sprintf("%s: %s is %s", of, name, value), Fix: "leave it 0 for its default, or give a positive " + sort}
}
