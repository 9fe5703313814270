package consumer

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Plan is the arithmetic that New proves before anything runs: one [Sum] a route for a record's budget, one for the calls
// that a route declares, and one for a rebalance. It is data; print it to see where the time goes.
type Plan []Sum

// String gives every sum, a line a term.
func (p Plan) String() string {
	lines := make([]string, len(p))
	for i, s := range p {
		lines[i] = s.String()
	}
	return strings.Join(lines, "\n")
}

// Sum is one line of the plan: terms that together must not exceed a limit.
type Sum struct {
	// Of says what the sum is of: `budget of a record of route "orders"`, or a rebalance.
	Of string
	// Terms are what is added, in the order in which it happens.
	Terms []Term
	// Limit is the Config field that bounds the sum, and its value.
	Limit Term

	levers []lever
}

// Term is a named duration: a field or what several make together, and the time that it takes at most.
type Term struct {
	Name string
	Took time.Duration
}

// Total is the sum of the terms, math.MaxInt64 if that does not hold it.
func (s Sum) Total() time.Duration {
	var total time.Duration
	for _, t := range s.Terms {
		total = add(total, t.Took)
	}
	return total
}

// Fits says whether the terms are within the limit.
func (s Sum) Fits() bool { return s.over() <= 0 }

// over is by how much the sum exceeds the limit.
func (s Sum) over() time.Duration { return s.Total() - s.Limit.Took }

// String gives the sum a line a term, then the total beside the limit, and for one that does not fit the smallest
// change that makes it fit.
func (s Sum) String() string {
	if s.Fits() {
		return s.table()
	}
	return s.table() + "\n  fix: " + s.Fix()
}

func (s Sum) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n", s.Of)
	for i, t := range s.Terms {
		fmt.Fprintf(&b, "  %s %-*s %10s\n", sign(i), s.width(), t.Name, short(t.Took))
	}
	fmt.Fprintf(&b, "  = %-*s %10s, %s", s.width(), "", short(s.Total()), s.verdict())
	return b.String()
}

func (s Sum) verdict() string {
	limit := s.Limit.Name + " " + short(s.Limit.Took)
	if s.Fits() {
		return "within " + limit
	}
	return "exceeds " + limit + " by " + short(s.over())
}

// Fix is the smallest change that makes the sum fit, and the one of the limit; "" for a sum that fits.
func (s Sum) Fix() string {
	if s.Fits() {
		return ""
	}
	raise := fmt.Sprintf("raise %s to %s", s.Limit.Name, short(s.Total()))
	if best, ok := s.smallest(); ok {
		return fmt.Sprintf("lower %s, or %s", best, raise)
	}
	return raise
}

func (s Sum) width() int {
	w := 0
	for _, t := range s.Terms {
		w = max(w, len(t.Name))
	}
	return w
}

// smallest asks every lever what it must become, and takes the one that moves least in proportion.
func (s Sum) smallest() (text string, ok bool) {
	least := math.Inf(1)
	for _, l := range s.levers {
		if change, to, can := l(s.over()); can && change < least {
			least, text, ok = change, to, true
		}
	}
	return text, ok
}

func sign(i int) string {
	if i == 0 {
		return " "
	}
	return "+"
}
