// Package durations measures what something takes as a rule.
package durations

import (
	"math"
	"time"
)

// Recent counts how long things took, over the last half to one minute, in steps of an eighth of an octave: what it says is
// at most 9 % too much. The zero value is ready. It is not safe for concurrent use.
type Recent struct {
	since      time.Time
	now, early histogram
}

type histogram struct {
	n     int
	steps [octaves * stepsAnOctave]int
}

const (
	half          = 30 * time.Second
	octaves       = 36 // from 1µs to a day
	stepsAnOctave = 8
	// enoughTook is of how many a hundredth says something.
	enoughTook = 100
)

// Add counts one that ended at at.
func (r *Recent) Add(at time.Time, took time.Duration) {
	r.turn(at)
	r.now.n++
	r.now.steps[stepOf(took)]++
}

func stepOf(took time.Duration) int {
	if took <= time.Microsecond {
		return 0
	}
	return min(int(math.Ceil(stepsAnOctave*math.Log2(float64(took)/float64(time.Microsecond)))), octaves*stepsAnOctave-1)
}

func (r *Recent) turn(at time.Time) {
	switch passed := at.Sub(r.since); {
	case passed >= 2*half:
		r.early, r.now, r.since = histogram{}, histogram{}, at
	case passed >= half:
		r.early, r.now, r.since = r.now, histogram{}, r.since.Add(half)
	}
}

// P99 is the time within which 99 of 100 ended, 0 if too few have.
func (r *Recent) P99(at time.Time) time.Duration {
	r.turn(at)
	n := r.now.n + r.early.n
	if n < enoughTook {
		return 0
	}
	above := n / 100
	for step := len(r.now.steps) - 1; step >= 0; step-- {
		if above -= r.now.steps[step] + r.early.steps[step]; above < 0 {
			return time.Duration(float64(time.Microsecond) * math.Exp2(float64(step)/stepsAnOctave))
		}
	}
	return 0
}
