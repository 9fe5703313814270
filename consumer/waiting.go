package consumer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// readyReason is how many bytes of a reason stand in a line of /readyz. The log has more of it.
const readyReason = 200

// waiting says which route waits for what, since when and why, a line each and in a fixed order; nil if none does.
func (e *engine) waiting() error {
	var errs []error
	for _, s := range e.c.specs {
		for _, w := range e.routes[s.name].Waiting() {
			errs = append(errs, readyLine(fmt.Sprintf("route %q holds: %s", s.name, what(w)), w.Err, remedy(w)))
		}
	}
	return errors.Join(errs...)
}

// unread says what the transport does not read, since when and why, a line each; nil if it reads everything.
func (e *engine) unread() error {
	var errs []error
	for _, err := range apart(e.source.Ready()) {
		var p *kafka.ProblemError
		if !errors.As(err, &p) {
			errs = append(errs, redact.Of(err, e.c.cfg.RedactError))
			continue
		}
		place := p.Place()
		if place == "" {
			place = "consumer group"
		}
		errs = append(errs, readyLine(fmt.Sprintf("%s: %s for %s", place, p.Kind, since(p.Since)), redact.Of(p.Err, e.c.cfg.RedactError), p.Hint()))
	}
	return errors.Join(errs...)
}

// apart gives the errors of a join, and of those in it. One that is wrapped is one matter.
func apart(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, apart(one)...)
	}
	return all
}

// readyLine is one reason not to be ready: what it is, why and what to do, as far as that is known. The text of why may be shown.
func readyLine(what string, why error, hint string) error {
	if why != nil {
		what += ": " + redact.Trim(strings.Join(strings.Fields(why.Error()), " "), readyReason)
	}
	if hint != "" {
		what += "; hint: " + hint
	}
	return redact.As(why, what)
}

// what a route waits for.
func what(w middleware.Wait) string {
	switch w.Dependency {
	case middleware.NoRoom:
		return fmt.Sprintf("its parking is full, and records have waited for room for %s", since(w.Since))
	case middleware.Flood:
		return fmt.Sprintf("the flood guard has refused dead letters of %s/%d for %s", w.Partition.Topic, w.Partition.Partition, since(w.Since))
	case middleware.RetryAfter:
		return fmt.Sprintf("a Retry-After has kept it waiting for %s", since(w.Since))
	case middleware.RouteStopped:
		return fmt.Sprintf("it stopped %s ago", since(w.Since))
	}
	return fmt.Sprintf("%s has been down for %s%s", w.Dependency, since(w.Since), breakerOf(w.Breaker))
}

// breakerOf is what opened a breaker, "" for one that is not open.
func breakerOf(i record.BreakerInfo) string {
	if i.To == "" {
		return ""
	}
	return fmt.Sprintf(", its breaker opened when %d of %d calls within %s had failed (%s)", i.Failures, i.Requests, short(i.Window), threshold(i))
}

// remedy is what to do about a wait. That of a dependency is to bring it back, which goes without saying. Errors are asked
// only where they are ours: a handler's may have a hint with a payload in it.
func remedy(w middleware.Wait) string {
	var hint interface{ Hint() string }
	ours := w.Dependency == fault.DeadLetterTopic || w.Dependency == middleware.NoRoom
	switch {
	case ours && errors.As(w.Err, &hint):
		return hint.Hint()
	case w.Dependency == fault.DeadLetterTopic:
		return "whether the topic is there, and this user may write to it"
	case w.Dependency == middleware.Flood:
		return "a bad deploy and not bad data? Roll it back; Release of the route's FloodGuard lets the dead letters through"
	case w.Dependency == middleware.RouteStopped:
		return "its handler has ended the inbox's transaction: deploy one that does not"
	}
	return ""
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }
