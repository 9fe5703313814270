package audit

import (
	"bytes"
	"fmt"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// books are all that there is of one route.
type books struct {
	Route
	topic   *topic
	byHash  map[int64]*kgo.Record // by coordinates, as the inbox stores them
	effects map[place][]effect    // also those of its replays
	letters map[place][]letter
	rows    map[uuid.UUID]row
	parked  map[uuid.UUID]bool
	floods  map[int32]int // records of a partition that a deploy failed
	count   Count
}

func (b *books) complain(format string, args ...any) {
	b.count.Violations = append(b.count.Violations, "route "+b.Name+": "+fmt.Sprintf(format, args...))
}

// outcome is what became of a record.
type outcome string

const (
	effected  outcome = "effected"
	duplicate outcome = "duplicate"
	skipped   outcome = "skipped"
	dead      outcome = "dead"
	parked    outcome = "parked"
	lost      outcome = "lost"
	unread    outcome = "unread" // the group is not there yet
)

// outcomes gives every record its own, and compares it with its fate.
func (b *books) outcomes() {
	b.count.Produced, b.count.Reasons = len(b.topic.records), map[string]int{}
	b.floods = map[int32]int{}
	for _, r := range b.topic.records {
		o := b.outcome(r)
		switch o {
		case effected:
			b.count.Effected++
		case duplicate:
			b.count.Duplicate++
		case skipped:
			b.count.Skipped++
		case dead:
			b.count.Dead++
			b.count.Reasons[b.letters[placeOf(r)][0].fields["headrace-reason"]]++
		case parked:
			b.count.Parked++
		case lost, unread: // it has been complained about, or its partition has
		}
		b.fated(r, o)
	}
	b.rowsAddUp()
	b.held()
}

// held finds partitions of which more has died of a deploy than the flood guard may let through.
func (b *books) held() {
	for partition, n := range b.floods {
		if n > b.Floods {
			b.complain("%d records of partition %d are dead, and their fate was effect; the flood guard may let %d through", n, partition, b.Floods)
		}
	}
}

// fated compares. A duplicate shares the fate of the record that was first.
func (b *books) fated(r *kgo.Record, o outcome) {
	fate := text(r, FateHeader)
	switch {
	case fate == "" || o == lost || o == unread || o == duplicate || o == parked:
	case fate == Effect && o == dead && b.Floods > 0:
		b.floods[r.Partition]++
	case fate == Effect && o != effected, fate == Skip && o != skipped, fate == Dead && o != dead && !b.replayed(r):
		why := ""
		for _, l := range b.letters[placeOf(r)] {
			why = fmt.Sprintf(" (%s: %s)", l.fields["headrace-reason"], l.fields["headrace-error"])
		}
		b.complain("%s is %s, and its fate was %s%s", placeOf(r), o, fate, why)
	}
}

func (b *books) replayed(r *kgo.Record) bool {
	for _, e := range b.effects[placeOf(r)] {
		if e.replayed {
			return true
		}
	}
	return false
}

func (b *books) outcome(r *kgo.Record) outcome {
	at := placeOf(r)
	if b.parked[b.id(r)] && len(b.effects[at])+len(b.letters[at]) > 0 {
		b.complain("%s is parked, and has %d effects and %d dead letters", at, len(b.effects[at]), len(b.letters[at]))
	}
	switch n := len(b.effects[at]); {
	case n > 1:
		b.complain("%s has %d effects", at, n)
		return effected
	case n == 1:
		b.effected(r)
		return effected
	case len(b.letters[at]) > 0:
		b.dead(r)
		return dead
	}
	return b.silent(r)
}

// effected checks a record whose handler wrote.
func (b *books) effected(r *kgo.Record) {
	at, replayed := placeOf(r), b.replayed(r)
	hash, _ := coordinates(b.topic.id, at)
	row, ok := b.rows[b.id(r)]
	switch {
	case b.ByOffset && !replayed:
		if ok || len(b.letters[at]) > 0 {
			b.complain("%s has an effect, and an inbox row: %v, and %d dead letters", at, ok, len(b.letters[at]))
		}
	case !ok:
		b.complain("%s has an effect and no inbox row", at)
	case row.State != effectedRow || !row.is(hash):
		b.complain("%s has an effect, and its inbox row is of state %d, its own: %v", at, row.State, row.is(hash))
	case !replayed && len(b.letters[at]) > 0:
		b.complain("%s has an effect and a dead letter", at)
	}
}

// dead checks a record of which there are letters: byte for byte, and with the verdict in the inbox.
func (b *books) dead(r *kgo.Record) {
	at := placeOf(r)
	hash, byPlace := coordinates(b.topic.id, at)
	for _, l := range b.letters[at] {
		if what := l.differs(r); what != "" {
			b.complain("the dead letter of %s has another %s", at, what)
		}
	}
	for _, key := range []uuid.UUID{b.id(r), byPlace} {
		if row, ok := b.rows[key]; ok && row.is(hash) && row.State == deadRow {
			return
		}
	}
	b.complain("%s has a dead letter and no dead row of its own", at)
}

// silent finds the outcome of a record that left neither an effect nor a letter.
func (b *books) silent(r *kgo.Record) outcome {
	at := placeOf(r)
	hash, byPlace := coordinates(b.topic.id, at)
	row, ok := b.rows[b.id(r)]
	if own, there := b.rows[byPlace]; there && own.State == deadRow {
		b.complain("%s is LOST: dead in the inbox, and no letter", at)
		return lost
	}
	switch {
	case !ok && b.parked[b.id(r)]:
		return parked
	case at.offset >= b.topic.committed[at.partition] && (!ok || !row.is(hash)):
		return unread
	case b.ByOffset && !ok && text(r, FateHeader) == Skip:
		return skipped // nothing else shows it
	case !ok:
		b.complain("%s is LOST: no effect, no letter, no row", at)
		return lost
	case !row.is(hash):
		if first := b.byHash[row.Coordinates]; first != nil && !bytes.Equal(first.Value, r.Value) {
			b.complain("%s was taken for a duplicate of %s and has another value", at, placeOf(first))
		}
		return duplicate
	case row.State == skippedRow:
		return skipped
	}
	b.complain("%s is LOST: of state %d in the inbox, and neither effect nor letter", at, row.State)
	return lost
}

// rowsAddUp finds rows that belong to no record.
func (b *books) rowsAddUp() {
	rows := 0
	for _, r := range b.rows {
		if r.State != movedRow {
			rows++
		}
	}
	should := b.count.Effected + b.count.Skipped + b.count.Dead
	if b.ByOffset {
		should = b.count.Dead
		for _, r := range b.topic.records {
			if b.replayed(r) {
				should++
			}
		}
	}
	if rows != should {
		b.complain("%d inbox rows, and %d records that should have one", rows, should)
	}
}

// id is by what the inbox knows a record: its place where its producer named nothing, and always with the offset store.
func (b *books) id(r *kgo.Record) uuid.UUID {
	if id := identity(r); id != "" && !b.ByOffset {
		return keyOf(id)
	}
	_, byPlace := coordinates(b.topic.id, placeOf(r))
	return byPlace
}
