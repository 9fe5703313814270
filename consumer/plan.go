package consumer

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"time"
)

// Plan is the arithmetic that New proves before anything runs: one [Sum] a route for a record's budget, and one for a
// rebalance. It is data; print it to see where the time goes.
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
	// Of says what the sum is of: `route "orders"`, or a rebalance.
	Of string
	// Terms are what is added, in the order in which it happens.
	Terms []Term
	// Limit is the Config field that bounds the sum, and its value.
	Limit Term

	levers []lever
}

// Term is a named duration.
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

// lever says what one field must become to save `over`: the change in proportion, and the text "Field to 41s". It is
// false when the field alone cannot save that much.
type lever func(over time.Duration) (change float64, to string, ok bool)

// duration is the lever of a field that counts `times` times in a sum.
func duration(name string, value time.Duration, times int) lever {
	return func(over time.Duration) (float64, string, bool) {
		if times < 1 || value <= 0 {
			return 0, "", false
		}
		to := lowered(value, over, times)
		return cut(value, to), name + " to " + short(to), to > 0
	}
}

// lowered is the most that a field may be which counts `times` times in a sum that is to shrink by over.
func lowered(value, over time.Duration, times int) time.Duration {
	return roundDown(value - ((over-1)/time.Duration(times) + 1)) // rounded up: a nanosecond too little does not fit
}

// cut is by what part a value shrinks.
func cut(from, to time.Duration) float64 { return 1 - float64(to)/float64(from) }

// count is the lever of Attempts, whose every step saves what `total` says.
func count(name string, value int, total func(n int) time.Duration) lever {
	return func(over time.Duration) (float64, string, bool) {
		// The most that saves enough; fewer save more.
		n := sort.Search(max(value-1, 0), func(i int) bool { return total(value)-total(i+1) < over })
		return float64(value-n) / float64(value), fmt.Sprintf("%s to %d", name, n), n >= 1
	}
}

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

// add and times saturate: a plan with a year in it must be refused, not wrap around into one that fits.
func add(a, b time.Duration) time.Duration {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(d time.Duration, n int) time.Duration {
	if n > 0 && d > math.MaxInt64/time.Duration(n) {
		return math.MaxInt64
	}
	return d * time.Duration(n)
}

func sign(i int) string {
	if i == 0 {
		return " "
	}
	return "+"
}

// roundDown gives a value that somebody would write: whole seconds from 10 s on, tenths from 1 s on, else milliseconds.
func roundDown(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Truncate(time.Second)
	case d >= time.Second:
		return d.Truncate(100 * time.Millisecond)
	default:
		return d.Truncate(time.Millisecond)
	}
}

// short is Duration.String without the zero units that it drags along: 4m0s reads 4m.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
