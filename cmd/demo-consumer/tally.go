package main

import (
	"sync"

	"github.com/headrace/headrace/record"
)

// tally is what the live line shows. The report never looks at its outcomes: they are counted from the topics and the
// tables, by somebody who was not there.
type tally struct {
	mu       sync.Mutex
	outcomes map[record.Outcome]int // of distinct records
	seen     map[settled]struct{}
	waits    map[settled]struct{} // those that are parked
	parked   int                  // that were, ever
	again    int                  // redelivered after they were settled
	holding  int
	held     int // holds that began, ever
	owners   map[int32]string
	last     [2]string // the last move of a partition: from whom, to whom
	moves    int       // how often the direction of moves changed: rebalances that moved something
	payments string    // the breaker's state
	trips    int       // how often it opened
	degraded int       // reads that got a substitute
}

// settled is a record that has an outcome.
type settled struct {
	topic string
	place place
}

func newTally() *tally {
	return &tally{
		outcomes: map[record.Outcome]int{}, seen: map[settled]struct{}{}, waits: map[settled]struct{}{}, owners: map[int32]string{},
		payments: record.BreakerClosed,
	}
}

// hooks are those of one member of the group.
func (t *tally) hooks(member string) *record.Hooks {
	return &record.Hooks{
		OnSettle: t.settle,
		OnHold:   func(i record.HoldInfo) { t.hold(i.Began) },
		OnClaim: func(i record.ClaimInfo) {
			if i.Event == "assigned" {
				t.assigned(i.Partition, member)
			}
		},
	}
}

func (t *tally) settle(i record.SettleInfo) {
	r := settled{i.Topic, place{i.Partition, i.Offset}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, again := t.seen[r]; again {
		t.resettle(r, i.Outcome)
		return
	}
	t.seen[r] = struct{}{}
	if i.Outcome == record.Parked {
		t.waits[r] = struct{}{}
		t.parked++
	}
	t.outcomes[i.Outcome]++
}

func (t *tally) hold(began bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if began {
		t.holding++
		t.held++
		return
	}
	t.holding--
}

// assigned counts a rebalance when a partition goes from one member to another in another direction than the last one
// that did: all that move between the same two are one rebalance.
func (t *tally) assigned(partition int32, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from, known := t.owners[partition]
	t.owners[partition] = to
	move := [2]string{from, to}
	if !known || from == to || move == t.last {
		return
	}
	t.last = move
	t.moves++
}

// breaker follows the one of the payment service. A probe that fails opens it again and is no trip of its own.
func (t *tally) breaker(i record.BreakerInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.payments = i.To
	if i.From == record.BreakerClosed && i.To == record.BreakerOpen {
		t.trips++
	}
}

// degrade counts a read that got a substitute.
func (t *tally) degrade(record.DegradedInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.degraded++
}

// snapshot is a tally at one moment.
type snapshot struct {
	outcomes map[record.Outcome]int
	total    int
	again    int
	holding  int
	held     int
	moves    int
	payments string
	trips    int
	degraded int
	parked   int
}

func (t *tally) snapshot() snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := snapshot{
		outcomes: map[record.Outcome]int{}, again: t.again, holding: t.holding, held: t.held, moves: t.moves,
		payments: t.payments, trips: t.trips, degraded: t.degraded, parked: t.parked,
	}
	for o, n := range t.outcomes {
		s.outcomes[o] = n
		s.total += n
	}
	return s
}
