package consumer

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/routename"
)

const (
	// minAttemptTimeout is what a statement and a COMMIT take at least. What is shorter was meant in another unit.
	minAttemptTimeout = 10 * time.Millisecond
	// minInterval is what keeps a ticker from becoming a busy loop of requests.
	minInterval = 10 * time.Millisecond
	// minSessionTimeout is the client's; brokers want more as a rule.
	minSessionTimeout = 100 * time.Millisecond
	// minDeadLetterTimeout leaves a write the time for a retry.
	minDeadLetterTimeout = time.Second
	// maxWire is what Kafka's protocol can carry: 31 bits of milliseconds.
	maxWire = math.MaxInt32 * time.Millisecond
)

// bound is what a duration must be within, for a reason that is not ours to change.
type bound struct {
	Term

	least, most time.Duration // most is 0 for none
	why         string
}

func (c Config) bounds() []bound {
	const wire, often = "Kafka's protocol has no room for more", "each is a request to the broker"
	return []bound{
		{Term{"SessionTimeout", c.SessionTimeout}, minSessionTimeout, maxWire, "the Kafka client takes nothing else"},
		{Term{"RebalanceTimeout", c.RebalanceTimeout}, 0, maxWire, wire},
		{Term{"HeartbeatInterval", c.HeartbeatInterval}, minInterval, 0, often},
		{Term{"CommitInterval", c.CommitInterval}, minInterval, 0, often},
		{Term{"DeadLetterTimeout", c.DeadLetterTimeout}, minDeadLetterTimeout, 0, "a write needs room for a retry"},
	}
}

func (o Options) bounds() []bound {
	return []bound{{
		Term{"AttemptTimeout", o.AttemptTimeout},
		minAttemptTimeout, dedup.MaxAttemptTimeout,
		"it is a time limit of the transaction, which has round trips to make and keeps 31 bits of milliseconds",
	}}
}

// outside finds what is beyond its bounds. Negative durations are told already.
func outside(of string, bs []bound) []Problem {
	var ps []Problem
	for _, b := range bs {
		switch {
		case b.Took >= 0 && b.Took < b.least:
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s: %s %s is below %s: %s", of, b.Name, short(b.Took), short(b.least), b.why),
				Fix:  fmt.Sprintf("raise it to %s or more", short(b.least)),
			})
		case b.most > 0 && b.Took > b.most:
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s: %s %s is above %s: %s", of, b.Name, short(b.Took), short(b.most), b.why),
				Fix:  fmt.Sprintf("lower it to %s or less", short(b.most)),
			})
		}
	}
	return ps
}

// unstorable finds a name that neither the inbox nor a metric could have.
func unstorable(what, text string) []Problem {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return nil
	}
	return []Problem{{
		What: fmt.Sprintf("%s is %q, which Postgres cannot store", what, text), Fix: "use valid UTF-8 without a zero byte",
	}}
}

// misnamed finds a route's name that nobody could keep or write.
func misnamed(what, name string) []Problem {
	if ps := unstorable(what, name); ps != nil {
		return ps
	}
	if wrong, instead := routename.Check(name); wrong != "" {
		return []Problem{{What: fmt.Sprintf("%s is %q, which %s", what, name, wrong), Fix: fmt.Sprintf("name it differently, for example %q", instead)}}
	}
	return nil
}
