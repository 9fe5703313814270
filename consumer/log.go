package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// letterInterval is between two lines about dead letters of one route and reason: a flood of them is one line a minute.
const letterInterval = time.Minute

// logHooks log what an operator must know: each report, the first dead letter of a kind in a minute, and when a route
// begins and ends to wait for a dependency. Whoever reports does not log, so each matter is one line.
func logHooks(log *slog.Logger) record.Hooks {
	l := &eventLog{log: log, letters: map[letterKind]*letterCount{}, holds: map[hold]int{}}
	return record.Hooks{
		OnReport:     record.LogReports(log),
		OnDeadLetter: l.deadLetter,
		OnHold:       l.hold,
		OnBreaker:    func(i record.BreakerInfo) { logBreaker(log, i) },
		OnClaim: func(i record.ClaimInfo) {
			log.LogAttrs(context.Background(), slog.LevelInfo, "partition "+i.Event,
				slog.String("topic", i.Topic), slog.Int("partition", int(i.Partition)))
		},
	}
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

type (
	letterKind  struct{ route, reason string }
	letterCount struct {
		told    time.Time
		untold  int
		started bool
	}
	hold struct{ route, dependency string }
)

// eventLog counts what would be a line a record. It is safe for concurrent use.
type eventLog struct {
	log *slog.Logger

	mu      sync.Mutex
	letters map[letterKind]*letterCount
	holds   map[hold]int // records that wait
}

func (l *eventLog) deadLetter(i record.DeadLetterInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := letterKind{i.Route, i.Reason}
	n := l.letters[kind]
	if n == nil {
		n = &letterCount{}
		l.letters[kind] = n
	}
	now := time.Now()
	if n.started && now.Sub(n.told) < letterInterval {
		n.untold++
		return
	}
	n.told, n.started = now, true
	l.log.Warn("dead letter", "route", i.Route, "reason", i.Reason, "topic", i.Topic, "partition", i.Partition,
		"offset", i.Offset, "untold_before", n.untold)
	n.untold = 0
}

// hold tells of a route's first and last record that waits. Who waits for another delivery of the same record, or for a
// time that its handler asked for, waits for nothing that is down.
func (l *eventLog) hold(i record.HoldInfo) {
	if i.Dependency == middleware.BusyElsewhere || i.Dependency == middleware.Postponed {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := hold{i.Route, i.Dependency}
	if i.Began {
		if l.holds[h]++; l.holds[h] == 1 {
			l.log.Warn("route holds", "route", i.Route, "dependency", i.Dependency)
		}
		return
	}
	if l.holds[h]--; l.holds[h] == 0 {
		delete(l.holds, h)
		l.log.Info("route goes on", "route", i.Route, "dependency", i.Dependency)
	}
}
