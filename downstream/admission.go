package downstream

import (
	"context"
	"math"
	"time"
)

// Measured is Config.NormalTime by measurement.
const Measured = time.Duration(-1)

// admit refuses a call that has less time than its normal path takes: begun, it could only be cut short, and nobody would
// know whether it was carried out.
func (d *Dependency) admit(ctx context.Context) error {
	if d.cfg.NormalTime == 0 {
		return nil
	}
	at, bounded := ctx.Deadline()
	if !bounded {
		return nil
	}
	if left, normal := time.Until(at), d.normal(); left < normal {
		return &NoTimeError{Left: max(left, 0), Needs: normal}
	}
	return nil
}

func (d *Dependency) normal() time.Duration {
	if d.cfg.NormalTime != Measured {
		return d.cfg.NormalTime
	}
	d.breaker.mu.Lock()
	defer d.breaker.mu.Unlock()
	return min(d.breaker.took.p99(time.Now()), d.cfg.Timeout)
}

// durations count how long successes took, over the last half to one minute, in steps of an eighth of an octave: what they
// say is at most 9 % too much. Callers hold the breaker's lock.
type durations struct {
	since      time.Time
	now, early histogram
}

type histogram struct {
	n     int
	steps [octaves * stepsAnOctave]int
}

const (
	octaves       = 36 // from 1µs to a day
	stepsAnOctave = 8
	// enoughTook is of how many a hundredth says something.
	enoughTook = 100
)

func (d *durations) add(at time.Time, took time.Duration) {
	d.turn(at)
	d.now.n++
	d.now.steps[stepOf(took)]++
}

func stepOf(took time.Duration) int {
	if took <= time.Microsecond {
		return 0
	}
	return min(int(math.Ceil(stepsAnOctave*math.Log2(float64(took)/float64(time.Microsecond)))), octaves*stepsAnOctave-1)
}

func (d *durations) turn(at time.Time) {
	switch passed := at.Sub(d.since); {
	case passed >= 2*half:
		d.early, d.now, d.since = histogram{}, histogram{}, at
	case passed >= half:
		d.early, d.now, d.since = d.now, histogram{}, d.since.Add(half)
	}
}

// p99 is the time within which 99 of 100 succeed, 0 if too few have.
func (d *durations) p99(at time.Time) time.Duration {
	d.turn(at)
	n := d.now.n + d.early.n
	if n < enoughTook {
		return 0
	}
	above := n / 100
	for step := len(d.now.steps) - 1; step >= 0; step-- {
		if above -= d.now.steps[step] + d.early.steps[step]; above < 0 {
			return time.Duration(float64(time.Microsecond) * math.Exp2(float64(step)/stepsAnOctave))
		}
	}
	return 0
}
