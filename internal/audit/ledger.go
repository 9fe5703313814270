package audit

import "fmt"

// Outcome is what became of a record, as far as it can be known.
type Outcome string

// The outcomes. The first five are the promise's.
const (
	Effected  Outcome = "effected"
	Duplicate Outcome = "duplicate"
	Skipped   Outcome = "skipped"
	Dead      Outcome = "dead"
	Parked    Outcome = "parked"
	// Pending: the group has not committed an offset behind it, and nothing durable says more.
	Pending Outcome = "pending"
	// Forgotten: it is older than what the inbox must remember, and nothing is known of it any more.
	Forgotten Outcome = "forgotten"
	// Wrong: it has none, or two.
	Wrong Outcome = "wrong"
)

// Finding is a record that is not as it should be.
type Finding struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	// Outcomes is how many it has: 0 or 2.
	Outcomes int    `json:"outcomes"`
	What     string `json:"what"`
}

// Place is topic/partition/offset.
func (f Finding) Place() string { return fmt.Sprintf("%s/%d/%d", f.Topic, f.Partition, f.Offset) }

// Ledger is the sum of a route: Records = Effected + Duplicate + Skipped + Dead + Parked + Pending + Forgotten + Wrong.
type Ledger struct {
	Route string `json:"route"`
	// ByOffset says that the route has the offset store, which does not tell effected from skipped, and knows no duplicates.
	ByOffset  bool  `json:"by_offset"`
	Records   int64 `json:"records"`
	Effected  int64 `json:"effected"`
	Duplicate int64 `json:"duplicate"`
	Skipped   int64 `json:"skipped"`
	Dead      int64 `json:"dead"`
	Parked    int64 `json:"parked"`
	Pending   int64 `json:"pending"`
	Forgotten int64 `json:"forgotten"`
	Wrong     int64 `json:"wrong"`
	// Replays are the records of the replay topic that are this route's, of which WrongReplays have no outcome.
	Replays      int64 `json:"replays"`
	WrongReplays int64 `json:"wrong_replays"`
	// Repeated are letters that stand twice: a crash between a letter and its settlement writes it again. They count once.
	Repeated int64 `json:"repeated_letters"`
	// ByPlace are records that were found by their place alone: their id is not what the identity says that was asked for.
	ByPlace int64 `json:"found_by_place"`
	// Findings name what is wrong, Notes letters that stand twice: at most MaxNamed each.
	Findings []Finding `json:"findings"`
	Notes    []Finding `json:"notes"`
}

// OK says that every record has one outcome.
func (l *Ledger) OK() bool { return l.Wrong == 0 && l.WrongReplays == 0 }

func (l *Ledger) count(o Outcome, n int64) {
	for _, c := range []struct {
		of  Outcome
		sum *int64
	}{
		{Effected, &l.Effected},
		{Duplicate, &l.Duplicate},
		{Skipped, &l.Skipped},
		{Dead, &l.Dead},
		{Parked, &l.Parked},
		{Pending, &l.Pending},
		{Forgotten, &l.Forgotten},
		{Wrong, &l.Wrong},
	} {
		if c.of == o {
			*c.sum += n
		}
	}
}

// MaxNamed is how many records are named of each kind; all are counted.
const MaxNamed = 10_000

func (l *Ledger) find(f Finding) {
	if len(l.Findings) < MaxNamed {
		l.Findings = append(l.Findings, f)
	}
}

func (l *Ledger) note(f Finding) {
	if len(l.Notes) < MaxNamed {
		l.Notes = append(l.Notes, f)
	}
}
