package parking

import (
	"slices"
	"time"

	"github.com/headrace/headrace/dlq"
)

// State is what a parked record waits for.
type State string

// The states.
const (
	// StateWaiting: its line is due later.
	StateWaiting State = "waiting"
	// StateDue: its line's time has come, and nobody has claimed it yet.
	StateDue State = "due"
	// StateRunning: a process has its line.
	StateRunning State = "running"
	// StateHeld: a record before it is dead, and the line waits for an operator.
	StateHeld State = "held"
	// StateBehind: another record of its key is before it.
	StateBehind State = "behind"
)

// States are all of them.
var States = []State{StateWaiting, StateDue, StateRunning, StateHeld, StateBehind}

// Filter says which parked records are meant, of whatever group and route. What is not set leaves nothing out.
type Filter struct {
	// Groups and Routes are whose records.
	Groups, Routes []string
	// Since and Until bound when the record was parked, by the database's clock.
	Since, Until time.Time
	// Keys are keys of records, byte for byte, At places where they were read, States what they wait for.
	Keys   []string
	At     []dlq.Coordinates
	States []State
	// Classes are those of the last failure, as fault spells them. A record that was never tried has none.
	Classes []string
}

// bySQL says that the database alone can tell what matches.
func (f Filter) bySQL() bool { return len(f.Keys)+len(f.At)+len(f.States)+len(f.Classes) == 0 }

func (f Filter) matches(w *Waiting) bool {
	return among(f.States, w.State) && among(f.At, w.At()) && among(f.Classes, w.Last().Class) &&
		(len(f.Keys) == 0 || w.Record != nil && w.Record.Key != nil && slices.Contains(f.Keys, string(w.Record.Key)))
}

func among[T comparable](list []T, value T) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

// Waiting is a parked record, and how its line stands.
type Waiting struct {
	Parked

	// Line is where it stands, Group and Route whose it is.
	Line         LineID
	Group, Route string
	State        State
	// Due is when the line is tried again, zero while it is held; while somebody works on it, when their lease ends.
	Due time.Time
	// Round is how often the line's head has failed, Deaths how many processes did not come back with it.
	Round, Deaths int
	// Behind is how many records stand behind a head; 0 for others.
	Behind int64
}

// LineID names a line: the route's number in headrace.consumers, and the line's KeyID.
type LineID struct {
	Consumer int32
	Key      int64
}

// At is where the record was read; a row that cannot be read names its topic by the id.
func (w *Waiting) At() dlq.Coordinates {
	at := dlq.Coordinates{Topic: w.TopicID.String(), Partition: w.Partition, Offset: w.Offset}
	if w.Record != nil {
		at.Topic = w.Record.Topic
	}
	return at
}

// Last is how the record failed last, zero for one that was never tried.
func (w *Waiting) Last() Failure {
	if n := len(w.History); n > 0 {
		return w.History[n-1]
	}
	return Failure{}
}
