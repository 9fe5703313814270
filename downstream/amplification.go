package downstream

import "time"

// amplification counts operations, and what was sent for them, over the last half to one minute. Callers hold the
// breaker's lock.
type amplification struct {
	since      time.Time
	now, early counted
}

type counted struct{ operations, sent int }

// half is how long a part of the window is.
const half = 30 * time.Second

// enough is how much must have been sent for a ratio to say something: in an outage only probes are, all of them repeats.
const enough = 20

func (a *amplification) add(at time.Time, repeat bool) {
	a.turn(at)
	a.now.sent++
	if !repeat {
		a.now.operations++
	}
}

// turn forgets what is too old.
func (a *amplification) turn(at time.Time) {
	switch passed := at.Sub(a.since); {
	case passed >= 2*half:
		a.early, a.now, a.since = counted{}, counted{}, at
	case passed >= half:
		a.early, a.now, a.since = a.now, counted{}, a.since.Add(half)
	}
}

func (a *amplification) ratio(at time.Time) float64 {
	a.turn(at)
	sent := a.now.sent + a.early.sent
	if sent < enough {
		return 1
	}
	return float64(sent) / float64(max(a.now.operations+a.early.operations, 1))
}

// Amplification is how many times as much the dependency was asked in the last half to one minute as there was to ask,
// further tries of routes included: 1 without any, and when little was asked at all. Retry tokens keep it at 1.1 where this
// package tries again; at 2 something else multiplies calls.
func (d *Dependency) Amplification() float64 {
	d.breaker.mu.Lock()
	defer d.breaker.mu.Unlock()
	return d.breaker.sent.ratio(time.Now())
}

// repeated is one more try of a call.
func (b *breaker) repeated() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent.add(time.Now(), true)
}
