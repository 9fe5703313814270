package dedup

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// entryState is where an entry stands. It is guarded by the route's lock.
type entryState uint8

const (
	queued entryState = iota
	taken             // in a group
	decided
)

// entry is one record in one Run call. While it is taken its other fields belong to the group's writer.
type entry struct {
	r     *record.Record
	c     *call
	rank  uint64 // the first half of its key, for sorting
	state entryState

	// answer is what the inbox said in the group that has it in hand.
	answer  Answer
	mode    mode
	touched bool          // it executed SQL
	raw     bool          // it had the connection itself in hand
	moved   bool          // the row of its place says so
	parked  bool          // a record of its key is, behind which it must wait
	ask     bool          // only an inbox row can tell what is known of it
	since   time.Time     // when its handler began to run
	took    time.Duration // how long that run was
	cause   error         // what it came to, before any verb
	verdict *DeadError    // what its row says, if the answer is DeadOwn
	first   *entry        // of its group, whose copy it is
	frail   bool          // it is likely to fail, and runs behind those that are not
	charged bool          // its handler, or what that queued, failed in this group
	img     *image        // of an offset store: its partition's, once that is acquired
	// attempt is that of a handler which has queued, and from, to are its statements in the writer's pipeline.
	attempt  *attempt
	queries  []pgx.QueuedQuery
	from, to int
	// deferred waits for COMMIT, for the whole call of a grouped handler on its first record.
	deferred []deferral

	// anew: its statements are described anew each time, for one failed by what the connection remembered, or may have.
	// renewed: all connections were made anew for it.
	anew, renewed bool

	// outcome or err is its verdict; it is told when its group has ended.
	outcome record.Outcome
	err     error

	// solo: it must have a transaction of its own from now on.
	solo bool
	// suspect: it was in line when its process died several times, so it is marked before it runs.
	suspect bool
	// watched: it was alone when a connection was lost, so its next ones are compared with another.
	watched bool
	// conflicts and losses count what ended a group while its handler ran, or nobody's in particular; the second number
	// of each is those with it alone.
	conflicts, conflictsAlone uint8
	losses, lossesAlone       uint8
}

// mode is how far an entry is in its group's transaction.
type mode uint8

const (
	waiting  mode = iota // not run, or to be run again: its row is taken back
	done                 // effected once the transaction commits
	skipping             // skipped once it does
	failing              // has its verdict; its row is taken back
)

// domain is what must stay in order: a record.Domain means something within one partition only.
type domain struct {
	topic     string
	partition int32
	name      string
}

func (e *entry) domain() domain {
	return domain{e.r.Topic, e.r.Partition, e.r.Domain()}
}

// call is one Run.
type call struct {
	ctx     context.Context
	work    Work
	entries []entry
	called  bool          // a call was made for some of them: a soft end does not undo that
	done    chan struct{} // closed when every entry is decided

	// guarded by the route's lock
	open    int      // entries that are not decided
	waiting int      // entries that are queued: while there are any, and it is not over, the call is in the route's queue
	groups  []*group // that have some of them in hand: several, if the records are more than a group takes
	over    error    // why nothing more of it may begin, nil while it may
}

func newCall(ctx context.Context, rs []*record.Record, work Work) *call {
	c := &call{ctx: ctx, work: work, entries: make([]entry, len(rs)), done: make(chan struct{})}
	c.open, c.waiting = len(rs), len(rs)
	for i, r := range rs {
		c.entries[i].r, c.entries[i].c = r, c
		c.called = c.called || r.Reply != nil
	}
	return c
}

// move keeps count. The route's lock is held.
func (c *call) move(e *entry, to entryState) {
	if e.state == queued {
		c.waiting--
	}
	if to == queued {
		c.waiting++
	}
	e.state = to
}

// alone reports whether one of c has a transaction of its own right now: something is wrong with it, or with another of
// c, and nothing else of c runs beside it.
func (c *call) alone() bool {
	return len(c.groups) > 0 && c.groups[0].solo
}

// inHand is where groups have records of c in hand. Those behind them wait for that group's end, so that order survives
// a cut and a failure. It is empty as a rule: a call that fits one group is not in line while that has it.
func (c *call) inHand() (f fronts) {
	if len(c.groups) == 0 {
		return nil
	}
	for i := range c.entries {
		if e := &c.entries[i]; e.state == taken {
			f.add(e)
		}
	}
	return f
}

// decide gives e its verdict. The route's lock is held.
func (c *call) decide(e *entry, err error) {
	if e.state == decided {
		return
	}
	c.move(e, decided)
	e.r.Err = err
	if c.open--; c.open == 0 {
		close(c.done)
	}
}

// decideQueued gives its verdict to all that nobody has in hand. The route's lock is held.
func (c *call) decideQueued(err error) {
	for i := range c.entries {
		if e := &c.entries[i]; e.state == queued {
			c.decide(e, err)
		}
	}
}
