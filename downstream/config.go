package downstream

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// Config is a dependency's. Name is required; the zero value of everything else is a default.
type Config struct {
	// Name is what holds, metrics and logs call the dependency. Required, and none of fault.Database,
	// fault.DeadLetterTopic, fault.Kafka and fault.Network, which name something else.
	Name string
	// Breaker says when the circuit breaker opens, and for how long.
	Breaker BreakerConfig
	// MaxConcurrent is how many calls may be in flight in this process. In a route a further one waits for its turn,
	// first come first served; outside of one it is refused at once.
	//
	// Defaults to 64.
	MaxConcurrent int
	// Timeout ends one try of Transport outside of a route, its answer's body included, if its context does not end
	// before. Do leaves its operation the context that it has, and only counts one that takes longer as failed. In a
	// route the route's CallTimeout stands for it.
	//
	// Defaults to 10s, or to half of Breaker.Window if that is less.
	Timeout time.Duration
	// NormalTime is what a call takes as a rule, say its p99: outside of a route, or in a call to another dependency, one
	// whose context has less time left is not begun, with a *NoTimeError. Measured takes the p99 of the calls that were
	// answered in the last half to one minute, once they are 100, and no more than Timeout.
	//
	// Defaults to 0: any time is enough.
	NormalTime time.Duration
	// Retry is for Transport and Run outside of a route. In a route the route retries.
	Retry RetryConfig
	// DeadlineHeader names a header in which Transport sends how much time the request has left, in whole milliseconds, so
	// that the dependency need not work on what nobody waits for any more.
	//
	// Defaults to none.
	DeadlineHeader string
	// KeyRetention is for how long the dependency remembers an idempotency key. A consumer refuses a route that could send
	// one again later than that after the first time: as late as its source, dead letter and replay topics keep together.
	//
	// Defaults to 0, unknown: nothing is checked.
	KeyRetention time.Duration
	// MaxAnswer is the longest answer that DecodeJSON reads, in bytes, decompressed. Each of MaxConcurrent calls may take a
	// small multiple of it in memory.
	//
	// Defaults to 10 MiB.
	MaxAnswer int
	// RefuseInTransaction makes a call under a context that carries the inbox's transaction an error, ErrInTransaction: for
	// tests. Without it such a call is made, counted and reported.
	//
	// Defaults to false.
	RefuseInTransaction bool
	// Tracer makes a span of each call outside of a route, with an event for each further try. In a route the attempt has
	// one.
	//
	// Defaults to none.
	Tracer trace.Tracer
	// Classifier says what the failures of Do and Transport mean outside of a route. In a route the route's does.
	//
	// Defaults to the built-in rules.
	Classifier *fault.Classifier
	// Hooks are told of calls and of the breaker. A consumer adds its own.
	//
	// Defaults to none.
	Hooks *record.Hooks
}

// BreakerConfig is a circuit breaker's. The zero value has the defaults, those of [Normal]; see [Critical] and [Tolerant] too.
// A half-open breaker lets exactly one call through, the probe, and its success closes it: that is not configurable. What
// counts as a failure is the Classifier's.
type BreakerConfig struct {
	// MinRequests is how many calls must have ended in Window before the breaker may open. Defaults to 20.
	MinRequests int
	// FailureRatio is the part of them, in (0, 1], that must have failed by the dependency's fault. Defaults to 0.5.
	FailureRatio float64
	// Window is what is counted. At least twice the time of a call, or slow failures fall out of it. Defaults to 60s.
	Window time.Duration
	// BucketPeriod is the step in which the oldest of the window is forgotten. Defaults to a twelfth of Window.
	BucketPeriod time.Duration
	// Trip says instead of MinRequests and FailureRatio whether the breaker opens, whenever a call has failed. It is called
	// under the breaker's lock: it must be quick and must not use the dependency. MinRequests goes on to bound how many
	// records may begin to fail before repeats count. Defaults to those two.
	Trip func(BreakerCounts) bool
	// OpenFor is how long nothing is let through, before one call may probe. Defaults to 30s.
	OpenFor time.Duration
}

// BreakerCounts are the calls that ended within the window, those that say something of the dependency.
type BreakerCounts struct {
	Successes, Failures int
	// InARow are the failures since the last success.
	InARow int
}

// RetryConfig says how Transport and Run try again outside of a route. The zero value has the defaults.
type RetryConfig struct {
	// Attempts is how often a request is tried at most; 1 is never again, and 5 the most: whoever waits longer than that
	// should not wait in memory, where a crash forgets it. Defaults to 3.
	Attempts int
	// Base is the longest wait before the second try; each further one may be twice as long. The wait is a random part
	// of it ("full jitter"), and never shorter than what the answer's Retry-After asks for. Defaults to 200ms.
	Base time.Duration
	// Cap is the longest wait before any try, but for a Retry-After. Defaults to 2s.
	Cap time.Duration
}

// buckets is into how many parts the breaker's window is cut: the oldest falls out when the next one begins.
const buckets = 12

// maxAnswer is the longest answer that is read of whoever says nothing.
const maxAnswer = 10 << 20

// maxAttempts is the most that are made in memory.
const maxAttempts = 5

func (c Config) withDefaults() Config {
	b := &c.Breaker
	b.MinRequests = cmp.Or(b.MinRequests, 20)
	b.FailureRatio = cmp.Or(b.FailureRatio, 0.5)
	b.Window = cmp.Or(b.Window, time.Minute)
	b.BucketPeriod = cmp.Or(b.BucketPeriod, b.Window/buckets)
	b.OpenFor = cmp.Or(b.OpenFor, 30*time.Second)
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, 64)
	c.Timeout = cmp.Or(c.Timeout, min(10*time.Second, b.Window/2))
	c.MaxAnswer = cmp.Or(c.MaxAnswer, maxAnswer)
	c.Retry.Attempts = cmp.Or(c.Retry.Attempts, 3)
	c.Retry.Base = cmp.Or(c.Retry.Base, 200*time.Millisecond)
	c.Retry.Cap = max(cmp.Or(c.Retry.Cap, 2*time.Second), c.Retry.Base)
	return c
}

func (c Config) validate() error {
	if c.Name == "" {
		return errors.New("downstream: Config.Name is empty: name the dependency, for holds, metrics and logs")
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("downstream %q: "+format, append([]any{c.Name}, args...)...))
		}
	}
	b := c.Breaker
	ours := []string{fault.Database, fault.DeadLetterTopic, fault.Kafka, fault.Network}
	check(!slices.Contains(ours, c.Name), "Config.Name is what Headrace calls something else (%v): take another", ours)
	check(b.MinRequests > 0, "Breaker.MinRequests (%d) must be at least 1", b.MinRequests)
	check(b.FailureRatio > 0 && b.FailureRatio <= 1, "Breaker.FailureRatio (%v) must be in (0, 1]", b.FailureRatio)
	check(b.Window >= buckets, "Breaker.Window (%s) must be positive", b.Window)
	check(b.BucketPeriod > 0 && b.BucketPeriod <= b.Window || b.Window < buckets,
		"Breaker.BucketPeriod (%s) must be positive and no longer than Window (%s)", b.BucketPeriod, b.Window)
	check(b.OpenFor > 0, "Breaker.OpenFor (%s) must be positive", b.OpenFor)
	check(c.MaxConcurrent > 0, "MaxConcurrent (%d) must be at least 1", c.MaxConcurrent)
	check(c.Timeout > 0, "Timeout (%s) must be positive", c.Timeout)
	check(b.Window < buckets || c.Timeout <= b.Window/2,
		"Breaker.Window (%s) must be at least twice Timeout (%s), or failures by timeout fall out of it uncounted", b.Window, c.Timeout)
	check(c.Retry.Attempts > 0, "Retry.Attempts (%d) must be at least 1", c.Retry.Attempts)
	check(c.Retry.Attempts <= maxAttempts, "Retry.Attempts (%d) is more than %d: an operation that needs so many waits too long in "+
		"memory; make it a record's call, which its route holds, parks (fault.Park) or dead-letters durably", c.Retry.Attempts, maxAttempts)
	check(c.Retry.backoffs() < b.Window || b.Window < buckets, "Breaker.Window (%s) must be longer than the %d back-offs of one series, %s: "+
		"lower Retry.Cap, or raise Window; its failure would fall out of the window before the next one", b.Window, c.Retry.Attempts-1, c.Retry.backoffs())
	check(c.NormalTime >= 0 || c.NormalTime == Measured, "NormalTime (%s) must be positive, or downstream.Measured", c.NormalTime)
	check(c.NormalTime <= c.Timeout, "NormalTime (%s) must not exceed Timeout (%s): no try would have as much", c.NormalTime, c.Timeout)
	check(c.KeyRetention >= 0, "KeyRetention (%s) must not be negative", c.KeyRetention)
	check(c.MaxAnswer > 0 && c.MaxAnswer < math.MaxInt, "MaxAnswer (%d) must be at least 1 and less than %d", c.MaxAnswer, math.MaxInt)
	check(c.DeadlineHeader == "" || httpguts.ValidHeaderFieldName(c.DeadlineHeader), "DeadlineHeader (%q) is no name of a header", c.DeadlineHeader)
	check(c.Retry.Base > 0, "Retry.Base (%s) must be positive", c.Retry.Base)
	check(c.Retry.Cap > 0, "Retry.Cap (%s) must be positive", c.Retry.Cap)
	return errors.Join(errs...)
}

// backoffs are the longest waits between all tries together.
func (c RetryConfig) backoffs() (sum time.Duration) {
	for n := range min(c.Attempts, maxAttempts) - 1 {
		sum += backoff.Exponential(c.Base, c.Cap, n)
	}
	return sum
}
