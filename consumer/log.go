package consumer

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// eventLog logs what an operator must know: each report, dead letters by kind, the partitions that come and go, and when
// a route begins and ends to wait for a dependency. Whoever reports does not log, so each matter is one line. It is safe
// for concurrent use.
type eventLog struct {
	log     *slog.Logger
	letters letterLog
	claims  claimLog

	mu    sync.Mutex
	holds map[hold]*holding
}

type hold struct{ route, dependency string }

// holding are the records that wait, since when and why. done says that one of them has what it waited for.
type holding struct {
	records int
	done    bool
	since   time.Time
	why     []any
}

func newEventLog(log *slog.Logger) *eventLog {
	return &eventLog{log: log, letters: newLetterLog(log), claims: claimLog{log: log}, holds: map[hold]*holding{}}
}

func (l *eventLog) hooks() record.Hooks {
	return record.Hooks{
		OnReport:     record.LogReports(l.log),
		OnDeadLetter: l.letters.died,
		OnHold:       l.hold,
		OnBreaker:    func(i record.BreakerInfo) { logBreaker(l.log, i) },
		OnClaim:      l.claims.changed,
	}
}

// flush tells what is gathered still.
func (l *eventLog) flush() {
	l.claims.flush()
	l.letters.flush()
}

// logBreaker warns of an outage once, and says with what it began: as long as it lasts, each probe that fails opens the
// breaker anew.
func logBreaker(log *slog.Logger, i record.BreakerInfo) {
	switch {
	case i.To == record.BreakerClosed:
		log.Info("breaker closes", "dependency", i.Dependency, "open_for", i.Open.Round(time.Millisecond))
	case i.To == record.BreakerHalfOpen:
		log.Info("breaker is half open: one call probes", "dependency", i.Dependency)
	case i.From == record.BreakerClosed:
		log.Warn("breaker opens", append([]any{
			"dependency", i.Dependency, "failures", i.Failures, "requests", i.Requests, "within", i.Window, "threshold", threshold(i),
		}, loggedWhy(i.Err)...)...)
	default:
		log.Info("breaker stays open: the probe failed", append([]any{"dependency", i.Dependency}, loggedWhy(i.Err)...)...)
	}
}

// threshold is what it takes to open a breaker.
func threshold(i record.BreakerInfo) string {
	if i.MinRequests == 0 {
		return "its own Trip"
	}
	return fmt.Sprintf("%g%% of at least %d", 100*i.FailureRatio, i.MinRequests)
}

// loggedReason are the attributes of why a record holds.
func loggedReason(i record.HoldInfo) (attrs []any) {
	if i.Class != "" {
		attrs = append(attrs, "class", i.Class)
	}
	return append(attrs, loggedWhy(i.Err)...)
}

// loggedWhy is the attribute of a reason, none if there is none.
func loggedWhy(err error) []any {
	if err == nil {
		return nil
	}
	return []any{"error", beginning(redact.Error(err), loggedMessage)}
}

// hold tells of a route's first and last record that waits, and why. Who waits for another delivery of the same record, for a time
// that its handler asked for or for its own budget, waits for nothing that is down.
func (l *eventLog) hold(i record.HoldInfo) {
	switch i.Dependency {
	case middleware.BusyElsewhere, middleware.Postponed, middleware.NoBudget:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := hold{i.Route, i.Dependency}
	now := l.holds[h]
	if i.Began {
		if now == nil {
			now = &holding{since: time.Now(), why: loggedReason(i)}
			l.holds[h] = now
			l.log.Warn("route holds", append([]any{"route", i.Route, "dependency", i.Dependency}, now.why...)...)
		}
		if now.records++; len(now.why) == 0 {
			now.why = loggedReason(i)
		}
		return
	}
	now.records--
	now.done = now.done || i.Done
	if now.records > 0 {
		return
	}
	delete(l.holds, h)
	if now.done { // else the partitions are another member's to go on with
		held := time.Since(now.since).Round(time.Millisecond)
		l.log.Info("route goes on", append([]any{"route", i.Route, "dependency", i.Dependency, "held_for", held}, now.why...)...)
	}
}
