package consumer

import (
	"fmt"
	"time"
)

// budget is what one record of a route may need until it is settled. Holds are not in it: while a dependency is down
// no record's time is spent.
type budget struct {
	route             string
	attempts          int
	callTimeout       time.Duration // 0 for a route that calls nobody
	attemptTimeout    time.Duration
	backoffBase       time.Duration
	backoffCap        time.Duration
	deadLetterTimeout time.Duration
	commitReserve     time.Duration
	maxPollInterval   time.Duration
	window            time.Duration // of the breaker of what is called, 0 without one
}

func (b budget) sum() Sum {
	return Sum{
		Of:     fmt.Sprintf("budget of a record of route %q", b.route),
		Terms:  b.terms(),
		Limit:  Term{"MaxPollInterval", b.maxPollInterval},
		levers: b.levers(),
	}
}

func (b budget) levers() []lever {
	return []lever{
		b.callLever(),
		duration("AttemptTimeout", b.attemptTimeout, b.attempts),
		count("Attempts", b.attempts, func(n int) time.Duration { return add(b.running(n), b.backoffs(n)) }),
		duration("DeadLetterTimeout", b.deadLetterTimeout, 1),
		b.backoffLever(),
	}
}

// terms has a line of its own for the calls: they are another lever than what is done with their results.
func (b budget) terms() []Term {
	var ts []Term
	if b.callTimeout > 0 {
		ts = append(ts, Term{b.timesName("CallTimeout", b.callTimeout), times(b.callTimeout, b.attempts)})
	}
	return append(ts,
		Term{b.timesName("AttemptTimeout", b.attemptTimeout), times(b.attemptTimeout, b.attempts)},
		Term{b.backoffName(), b.backoffs(b.attempts)},
		Term{"DeadLetterTimeout", b.deadLetterTimeout},
		Term{"CommitReserve", b.commitReserve},
	)
}

func (b budget) timesName(field string, value time.Duration) string {
	return fmt.Sprintf("%d attempts x %s %s", b.attempts, field, short(value))
}

func (b budget) backoffName() string {
	return fmt.Sprintf("%d back-offs from %s up to %s", b.attempts-1, short(b.backoffBase), short(b.backoffCap))
}

func (b budget) running(attempts int) time.Duration {
	return times(add(b.callTimeout, b.attemptTimeout), attempts)
}

// backoffs is the longest that the waits between n attempts can take: each doubles, up to the cap.
func (b budget) backoffs(attempts int) time.Duration {
	var total time.Duration
	step := b.backoffBase
	for done := range attempts - 1 {
		if step <= 0 || step >= b.backoffCap { // the rest is all the same, however many there are
			return add(total, times(min(step, b.backoffCap), attempts-1-done))
		}
		total = add(total, step)
		step = add(step, step)
	}
	return total
}

// callLever is one that has to move in any case when calls are too long for their breaker's window: then it is the
// smallest change, and as far as both need.
func (b budget) callLever() lever {
	if b.window == 0 || b.window >= times(b.callTimeout, 2) {
		return duration("CallTimeout", b.callTimeout, b.attempts)
	}
	return func(over time.Duration) (float64, string, bool) {
		to := b.longestCall(over)
		return 0, "CallTimeout to " + short(to), to > 0
	}
}

// longestCall is the most that CallTimeout may be, for a sum that is to shrink by over and for the breaker's window.
func (b budget) longestCall(over time.Duration) time.Duration {
	longest := roundDown(b.window / 2)
	if over > 0 && b.attempts > 0 {
		longest = min(longest, lowered(b.callTimeout, over, b.attempts))
	}
	return longest
}

// backoffLever lowers the cap to where even waits that all reach it are short enough: the sum is not linear in it.
func (b budget) backoffLever() lever {
	return func(over time.Duration) (float64, string, bool) {
		want := b.backoffs(b.attempts) - over
		if want <= 0 || b.attempts < 2 {
			return 0, "", false
		}
		to := b
		to.backoffCap = roundDown(want / time.Duration(b.attempts-1))
		return cut(b.backoffCap, to.backoffCap), "BackoffCap to " + short(to.backoffCap), to.backoffCap >= b.backoffBase
	}
}

// rebalance is what a member needs between hearing of a rebalance and joining it.
type rebalance struct {
	drainGrace, hardGrace, commit, heartbeat, reserve, timeout time.Duration
}

func (r rebalance) sum() Sum {
	return Sum{
		Of: "a rebalance",
		Terms: []Term{
			{"DrainGrace", r.drainGrace},
			{"HardGrace", r.hardGrace},
			{"CommitReserve", r.commit},
			{"HeartbeatInterval", r.heartbeat},
			{"reserve", r.reserve},
		},
		Limit: Term{"RebalanceTimeout", r.timeout},
		levers: []lever{
			duration("DrainGrace", r.drainGrace, 1),
			duration("HardGrace", r.hardGrace, 1),
			duration("CommitReserve", r.commit, 1),
			duration("HeartbeatInterval", r.heartbeat, 1),
		},
	}
}
