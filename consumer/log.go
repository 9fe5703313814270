package consumer

import (
	"log/slog"
	"sync"
	"time"

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

// holding are the records that wait. done says that one of them has what it waited for.
type holding struct {
	records int
	done    bool
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

// logBreaker warns of an outage once: as long as it lasts, each probe that fails opens the breaker anew.
func logBreaker(log *slog.Logger, i record.BreakerInfo) {
	switch {
	case i.To == record.BreakerClosed:
		log.Info("breaker closes", "dependency", i.Dependency, "open_for", i.Open.Round(time.Millisecond))
	case i.To == record.BreakerHalfOpen:
		log.Info("breaker is half open: one call probes", "dependency", i.Dependency)
	case i.From == record.BreakerClosed:
		log.Warn("breaker opens", "dependency", i.Dependency)
	default:
		log.Info("breaker stays open: the probe failed", "dependency", i.Dependency)
	}
}

// hold tells of a route's first and last record that waits. Who waits for another delivery of the same record, for a time
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
			now = &holding{}
			l.holds[h] = now
			l.log.Warn("route holds", "route", i.Route, "dependency", i.Dependency)
		}
		now.records++
		return
	}
	now.records--
	now.done = now.done || i.Done
	if now.records > 0 {
		return
	}
	delete(l.holds, h)
	if now.done { // else the partitions are another member's to go on with
		l.log.Info("route goes on", "route", i.Route, "dependency", i.Dependency)
	}
}
