package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/record"
)

// place is where a record of the topic is.
type place struct {
	partition int32
	offset    int64
}

// input is one record of the topic, as the ledger needs it.
type input struct {
	place    place
	identity record.Identity
	byPlace  uuid.UUID // the key under which the inbox knows it by its coordinates alone
	anew     uuid.UUID // the one under which a replay with a new id runs
	order    order
}

// row is a row of the inbox.
type row struct {
	outcome     record.Outcome
	hash        int64
	coordinates int64 // of the record that had the identity first
	replayed    bool  // its dead letter was replayed, and the outcome is of that
}

// posting is what the handler wrote for one order.
type posting struct {
	times   int
	seq     int64
	account int
	amount  int64 // of all
	charges []uuid.UUID
}

// facts are what is durable, and all that the ledger knows.
type facts struct {
	inputs   []input // in order of partition and offset
	rows     map[uuid.UUID]row
	letters  map[place][]dlq.Reason
	postings map[string]posting
	balances map[int]int64
	charges  map[string][]payments.Charge // by order
	events   map[uuid.UUID]int            // by charge
	notices  map[uuid.UUID]notice         // by charge
	parked   map[uuid.UUID]bool           // what is tried again later
	done     map[int32]int64              // before what offset everything of a partition is done; nil for an inbox, which has rows
}

// count makes the report of the facts.
func (f *facts) count() *report {
	l := &ledger{
		facts: f, report: &report{Records: len(f.inputs), DeadByReason: map[string]int{}, Degraded: map[string]int{}, Problems: []string{}},
		first: map[uuid.UUID]input{}, balances: map[int]int64{}, seq: map[int]int64{},
		ends: map[string]end{}, kinds: map[string]int{}, copies: map[string]int{}, vain: map[string]int{},
	}
	l.countCopies()
	for _, in := range f.inputs {
		l.enter(in)
	}
	l.close()
	return l.report
}

// ledger is the count in progress.
type ledger struct {
	*facts
	report   *report
	first    map[uuid.UUID]input // of each identity, the first record
	balances map[int]int64       // what the effected orders add up to
	seq      map[int]int64       // of each account, the last posting
	copies   map[string]int      // of each order, how many of its records are effected
	vain     map[string]int      // of each order, how many charges a replay with a new id made in vain
	ends     map[string]end      // of each order
	kinds    map[string]int      // problems by kind
}

// end is what became of a record.
type end struct {
	outcome  record.Outcome // Unsettled if nothing did
	replayed bool
	anew     bool // under a new id
	kind     kind
}

// enter adds one record: what became of it, and whether that is what its bytes say must become of it.
func (l *ledger) enter(in input) {
	got := l.end(in)
	want := l.expected(in, got)
	if got.outcome == record.Unsettled {
		l.problem("lost", "record %v (order %s) has no outcome", in.place, in.identity.ID)
		return
	}
	l.add(got.outcome)
	// A dead letter that was replayed may have had the effect that the record did not. Under a new id it may also be
	// skipped: it did not die of what its bytes say.
	risen := got.replayed && want.outcome == record.Dead &&
		(got.outcome == record.Effected || got.anew && got.outcome == fateOf(in.order.Kind).outcome)
	if got.outcome != want.outcome && !risen && got.outcome != record.Parked {
		l.problem("unexpected", "record %v (order %s, %s) is %s and should be %s",
			in.place, in.identity.ID, in.order.Kind, got.outcome, want.outcome)
	}
	l.checkLetters(in, got, want)
	if got.outcome == record.Effected {
		l.post(in, got)
	}
}

// end reads what became of a record: its own row, by its identity or its coordinates, or the row of another with the
// same identity and the same bytes.
func (l *ledger) end(in input) end {
	if l.done != nil {
		return l.endAt(in)
	}
	known, ok := l.rows[in.identity.Key]
	if ok && known.coordinates == in.identity.Coordinates {
		return end{outcome: known.outcome, replayed: known.replayed, kind: in.order.Kind}
	}
	if e, has := l.buried(in); has {
		return e
	}
	if ok && known.hash == in.identity.ValueHash {
		return end{outcome: record.Duplicate, kind: in.order.Kind}
	}
	if !ok && l.parked[in.identity.Key] {
		return end{outcome: record.Parked, kind: in.order.Kind}
	}
	return end{kind: in.order.Kind}
}

// buried reads what became of a record that died, or was done with, under its place.
func (l *ledger) buried(in input) (end, bool) {
	own, has := l.rows[in.byPlace]
	if again, ran := l.rows[in.anew]; has && ran {
		return end{outcome: again.outcome, replayed: again.outcome != record.Dead, anew: true, kind: in.order.Kind}, true
	}
	return end{outcome: own.outcome, replayed: own.replayed, kind: in.order.Kind}, has
}

// endAt is end with the offset store: only what died has a row. Of what is done, the posting shows that it had its effect,
// and what has none was skipped.
func (l *ledger) endAt(in input) end {
	if e, has := l.buried(in); has {
		return e
	}
	switch _, posted := l.postings[in.order.ID]; {
	case in.place.offset >= l.done[in.place.partition]:
		return end{kind: in.order.Kind}
	case posted:
		return end{outcome: record.Effected, kind: in.order.Kind}
	}
	return end{outcome: record.Skipped, kind: in.order.Kind}
}

// countCopies counts of each order how often it is to have its effect: once, and once more for each contradicting record
// that an operator has replayed with a new id.
func (l *ledger) countCopies() {
	for _, in := range l.inputs {
		if l.end(in).outcome == record.Effected {
			l.copies[in.order.ID]++
		}
		if again, ran := l.rows[in.anew]; ran && again.outcome == record.Dead && chargedInVain(in.order.Kind) {
			l.vain[in.order.ID]++
		}
	}
}

// expected is what must become of a record, from the topic alone: the first of its identity meets its kind's fate.
func (l *ledger) expected(in input, got end) fate {
	first, again := l.first[in.identity.Key]
	switch {
	case !again:
		l.first[in.identity.Key] = in
		l.ends[in.identity.ID] = got
		return fateOf(in.order.Kind)
	case first.identity.ValueHash != in.identity.ValueHash:
		return fate{record.Dead, dlq.IDConflict}
	default:
		return fate{outcome: record.Duplicate}
	}
}

func (l *ledger) add(o record.Outcome) {
	switch o {
	case record.Effected:
		l.report.Effected++
	case record.Duplicate:
		l.report.Duplicate++
	case record.Skipped:
		l.report.Skipped++
	case record.Dead:
		l.report.Dead++
	case record.Parked:
		l.report.Parked++
	case record.Unsettled, record.Foreign, record.Acked:
		l.problem("outcome", "%s is no outcome of the ledger", o)
	}
}

// checkLetters wants a dead letter for a record that is dead or was replayed, for the reason that its bytes give, and
// none for any other. No outage is such a reason.
func (l *ledger) checkLetters(in input, got end, want fate) {
	letters := l.letters[in.place]
	delete(l.letters, in.place)
	l.report.DeadLetters += len(letters)
	dead := got.outcome == record.Dead
	switch {
	case !dead && !got.replayed:
		if len(letters) > 0 {
			l.problem("false letter", "record %v is %s and has a dead letter, reason %s", in.place, got.outcome, letters[0])
		}
		return
	case len(letters) == 0:
		l.problem("no letter", "record %v is dead, or was, and has no dead letter", in.place)
		return
	case dead:
		l.report.DeadByReason[string(letters[0])]++
		l.report.exhibit = &in.place
	case got.anew:
		l.report.NewIDs++
	default:
		l.report.Replayed++
	}
	if letters[0] != want.reason {
		l.problem("reason", "record %v died of %s and should of %q", in.place, letters[0], want.reason)
	}
}

// post checks an effected order's writes: one posting for each of its effected records, of its amount and its charge,
// after the one before it on its account.
func (l *ledger) post(in input, got end) {
	p, o := l.postings[in.order.ID], in.order
	l.balances[o.Account] += o.Amount
	if n := l.copies[o.ID]; p.times != n || p.account != o.Account || p.amount != int64(n)*o.Amount {
		l.problem("posting", "order %s was posted %d times, %d to account %d; should be %d times, %d to %d",
			o.ID, p.times, p.amount, p.account, n, int64(n)*o.Amount, o.Account)
	}
	l.checkCharge(o, p)
	if got.replayed {
		return // later than it was produced, on purpose
	}
	if p.seq <= l.seq[o.Account] {
		l.problem("order", "order %s was posted to account %d before one that was produced earlier", o.ID, o.Account)
	}
	l.seq[o.Account] = p.seq
}

// close checks what no single record shows.
func (l *ledger) close() {
	l.checkCharges()
	l.checkNotices()
	for at, reasons := range l.letters {
		l.report.DeadLetters += len(reasons)
		l.problem("stray letter", "a dead letter of %v, where no record is", at)
	}
	if len(l.postings) != len(l.copies) {
		l.problem("postings", "%d orders were posted and %d are effected", len(l.postings), len(l.copies))
	}
	for account := range accounts {
		if got, want := l.facts.balances[account], l.balances[account]; got != want {
			l.problem("balance", "account %d has %d and its effected orders add up to %d", account, got, want)
		}
	}
	if sum := l.report.sum(); sum != l.report.Records {
		l.problem("sum", "the outcomes add up to %d of %d records", sum, l.report.Records)
	}
	for _, kind := range slices.Sorted(maps.Keys(l.kinds)) {
		if more := l.kinds[kind] - fewOfAKind; more > 0 {
			l.report.problem("… and %d more of kind %q", more, kind)
		}
	}
	l.report.OrderKept = l.kinds["order"] == 0
	l.report.Balanced = len(l.kinds) == 0
}

// fewOfAKind is how many problems of a kind are written out.
const fewOfAKind = 3

func (l *ledger) problem(kind, format string, args ...any) {
	if l.kinds[kind]++; l.kinds[kind] <= fewOfAKind {
		l.report.problem("%s", fmt.Sprintf(format, args...))
	}
}

func (p place) String() string { return fmt.Sprintf("%d/%d", p.partition, p.offset) }
