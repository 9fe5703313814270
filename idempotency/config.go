package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// DefaultTable is the table that Headrace's own migrations make.
const DefaultTable = "headrace.idempotency"

// Config is of [New]. Only Principal is required.
type Config struct {
	// Principal says who sends a request: two callers may choose the same key, and must not be given each other's answers.
	// "" is nobody, and answered 401. At most 255 bytes of UTF-8. A service with one caller says [OnePrincipal].
	Principal func(*http.Request) string
	// Table is where the keys are, as name or schema.name in lower case. [Schema] makes one. Defaults to DefaultTable.
	Table string
	// Timeout is how long a handler may run: its context ends then. The client's hanging up does not end it. A Tx handler
	// that ignores it loses its transaction when its session has been idle for that long, or a statement of it runs for that
	// long. A key of External is unknown after twice this time. 24 days at most. Defaults
	// to 30 s.
	Timeout time.Duration
	// MaxBytes bounds a request's body, and an answer's. Both are kept in memory, the answer in the table. Defaults to 1 MiB.
	MaxBytes int
	// Headers are names of headers that are stored beside Content-Type, Content-Language, Content-Encoding,
	// Content-Location, Location, ETag, Last-Modified and Link. Set-Cookie is refused: it is a secret of one client at one time.
	// Defaults to none.
	Headers []string
	// RetryAfter is what a client whose key is in progress is told to wait, in whole seconds. Defaults to 1 s.
	RetryAfter time.Duration
	// Retention is how long a finished key is remembered. It must be longer than anybody may repeat a request. Defaults to
	// 30 days: a dead letter is kept for two weeks, and its replay for two more. All Keys of a table need the same one.
	Retention time.Duration
	// Repeats are what can bring a request back, one after the other: New refuses a Retention shorter than their sum.
	// Defaults to none: nothing is proven.
	Repeats []Repeat
	// SweepEvery is the pause between the sweeps of Run. Defaults to 1 min.
	SweepEvery time.Duration
	// RedactError gives the text of an error for the log and the hooks. Whatever it says, what looks like a secret and values
	// that decoders and databases quote are replaced in it, and at most 4 KiB are kept. It must be quick and safe for
	// concurrent use; of an error that it panics of only the type is told. Defaults to nil: the text is err.Error().
	RedactError func(err error) string
	// Hooks are told what happens: for metrics. Package idemprom has a set of them for Prometheus. Defaults to none.
	Hooks Hooks
	// Logger is told what an operator must know: what failed, keys that are unknown. Defaults to slog.Default().
	Logger *slog.Logger
}

// Repeat is for how long something can bring a request back: a client's own retries, the topic that its record is in, the
// dead letter topic, the replay topic.
type Repeat struct {
	// Of says what, for the error.
	Of string
	// For is how long.
	For time.Duration
}

// OnePrincipal is for a service all of whose callers may see each other's answers.
func OnePrincipal(*http.Request) string { return "-" }

func (c Config) withDefaults() Config {
	c.Table = cmp.Or(c.Table, DefaultTable)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 1<<20)
	c.RetryAfter = cmp.Or(c.RetryAfter, time.Second)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	c.SweepEvery = cmp.Or(c.SweepEvery, time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// tableName keeps what is put into SQL from being anything but a name; its length leaves room for the index's.
var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,39}$`)

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("idempotency: "+format, args...)) }
	if c.Principal == nil {
		bad("Config.Principal is nil: callers that choose the same key would get each other's answers; " +
			"say who sends a request, or idempotency.OnePrincipal")
	}
	if !tableName.MatchString(c.Table) {
		bad("Config.Table %q is no name or schema.name in lower case of at most 40 characters", c.Table)
	}
	for name, value := range map[string]time.Duration{
		"Timeout": c.Timeout, "RetryAfter": c.RetryAfter, "Retention": c.Retention, "SweepEvery": c.SweepEvery,
	} {
		if value < time.Millisecond {
			bad("Config.%s %s is less than a millisecond", name, value)
		}
	}
	if c.Timeout > maxTimeout {
		bad("Config.Timeout %s is longer than %s: no session of Postgres has so long; what takes days is accepted (202) and done elsewhere",
			c.Timeout, maxTimeout)
	} else if c.Retention < 2*c.Timeout {
		bad("Config.Retention %s is shorter than two Timeouts of %s: a key would be forgotten while it is repeated", c.Retention, c.Timeout)
	}
	if err := c.proof(); err != nil {
		errs = append(errs, err)
	}
	if c.MaxBytes < 0 || c.MaxBytes > maxMaxBytes {
		bad("Config.MaxBytes %d is not between 1 and %d", c.MaxBytes, maxMaxBytes)
	}
	if slices.ContainsFunc(c.Headers, func(name string) bool { return http.CanonicalHeaderKey(name) == "Set-Cookie" }) {
		bad("Config.Headers has Set-Cookie: a replay would give one client's session to another")
	}
	return errors.Join(errs...)
}

// proof is nil when no repeat can come after its key is forgotten.
func (c Config) proof() error {
	var sum time.Duration
	terms := make([]string, len(c.Repeats))
	for i, r := range c.Repeats {
		if r.For <= 0 {
			return fmt.Errorf("idempotency: Config.Repeats[%d], %q, is for %s: give a time; what repeats for ever needs keys that are kept for ever",
				i, r.Of, r.For)
		}
		sum += min(r.For, math.MaxInt64-sum)
		terms[i] = r.Of + " " + short(r.For)
	}
	if sum <= c.Retention {
		return nil
	}
	return fmt.Errorf("idempotency: %s = %s exceed Config.Retention %s by %s: a repeat would come after its key is forgotten, and be carried "+
		"out again; raise Retention to %[2]s", strings.Join(terms, " + "), short(sum), short(c.Retention), short(sum-c.Retention))
}

// short leaves out the zeros of a duration's text.
func short(d time.Duration) string {
	return zeros.ReplaceAllString(d.String(), "$1")
}

var zeros = regexp.MustCompile(`([hm])(0m)?0s$`)

// maxTimeout is the longest statement_timeout, near enough: every transaction of a longer one would be refused.
const maxTimeout = 24 * 24 * time.Hour

// maxMaxBytes keeps a row far from Postgres' 1 GiB.
const maxMaxBytes = 64 << 20
