package parking

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Then is what becomes of a line of which records are left. A line without any is gone, whatever it says.
type Then uint8

const (
	// Next: the record behind those that are settled is due at once.
	Next Then = iota
	// Again: it failed, and waits for its next round.
	Again
	// Return: it was not tried. Nothing is spent.
	Return
	// Held: it waits for an operator.
	Held
)

// End is how a lease leaves one of its lines.
type End struct {
	// Key is the line's.
	Key int64
	// Settled are the records that have their outcome, from the head on, in order.
	Settled []Place
	// Then is what becomes of those that are left.
	Then Then
	// Delay is how long the next one waits: with Again what its handler asked for, 0 for the policy's own; with Return the
	// least. It is at most MaxAge, with Again what Age has left of that.
	Delay time.Duration
	// Failed is, with Again, the record that failed, and History what its rounds ended with, this one included.
	Failed  Place
	History History
	// Round is, with Again, the line's Round as it was claimed.
	Round int
	// Age is, with Again, for how long the record is being tried.
	Age time.Duration
}

// Finish gives up the lines of ends, all in one transaction: what is settled goes, and what is left waits as its end says.
// Lines that the lease has lost stay as their new holder has them; fenced are their keys. Records that joined a line
// meanwhile are left in it.
//
// After an error the lines may or may not be finished, and finishing them again is safe: then they may be among the
// fenced.
func (l *Lease) Finish(ctx context.Context, ends []End) (fenced []int64, err error) {
	if len(ends) == 0 {
		return nil, nil
	}
	f := newFinish(l.store.policy, ends)
	f.started = l.started(f.keys)
	mine := make(map[int64]bool, len(ends))
	s := l.store
	err = s.transact(ctx, func(b *pgx.Batch) {
		if s.sql.lock != "" {
			b.Queue(s.sql.lock, s.consumer, f.keys, l.token).Query(func(rows pgx.Rows) error {
				var key int64
				_, err := pgx.ForEachRow(rows, []any{&key}, func() error { mine[key] = true; return nil })
				return err
			})
		}
		if c := &f.settled; len(c.keys) > 0 {
			b.Queue(s.sql.settle, s.consumer, c.keys, l.token, uuids(c.topics), c.parts, c.offs)
		}
		if c := &f.failed; len(c.keys) > 0 {
			b.Queue(s.sql.fail, s.consumer, c.keys, l.token, uuids(c.topics), c.parts, c.offs, f.histories)
		}
		b.Queue(s.sql.drop, s.consumer, f.keys, l.token)
		b.Queue(s.sql.next, s.consumer, f.keys, l.token, f.hows, f.delays, f.moved, f.started)
	})
	if err != nil {
		return nil, fmt.Errorf("finish %d parked keys: %w", len(ends), err)
	}
	over := make(map[int64]bool, len(f.keys))
	for _, key := range f.keys {
		over[key] = true
		if !mine[key] {
			fenced = append(fenced, key)
		}
	}
	l.Lines, _ = split(l.Lines, func(line *Line) bool { return !over[line.Key] })
	return fenced, nil
}

// GiveBack gives up every line as it is, for another process to take at once.
func (l *Lease) GiveBack(ctx context.Context) error {
	_, err := l.Finish(ctx, l.returns())
	return err
}

func (l *Lease) returns() []End {
	ends := make([]End, len(l.Lines))
	for i, line := range l.Lines {
		ends[i] = End{Key: line.Key, Then: Return}
	}
	return ends
}

func (l *Lease) giveBackLate(ctx context.Context) error { return l.finishLate(ctx, l.returns()) }

// finishLate is Finish for a lease that may have run out although its process lives: what others have claimed meanwhile
// counts no death for it.
func (l *Lease) finishLate(ctx context.Context, ends []End) error {
	fenced, err := l.Finish(ctx, ends)
	if err != nil || len(fenced) == 0 {
		return err
	}
	return l.store.transact(ctx, func(b *pgx.Batch) { b.Queue(l.store.sql.alive, l.store.consumer, fenced, l.token) })
}

// started is how many starts of each line are this lease's: 1 or 0. Where it may be either, because the answer to Load was
// lost, it is 1, and a death may be forgotten: better than one too many.
func (l *Lease) started(keys []int64) []int32 {
	mine := make(map[int64]bool, len(l.Lines))
	for _, line := range l.Lines {
		mine[line.Key] = line.started
	}
	starts := make([]int32, len(keys))
	for i, key := range keys {
		if mine[key] {
			starts[i] = 1
		}
	}
	return starts
}

// places are records as the statements take them.
type places struct {
	keys, offs []int64
	parts      []int32
	topics     []uuid.UUID
}

func (c *places) add(p Place) {
	c.keys, c.topics = append(c.keys, p.Key), append(c.topics, p.TopicID)
	c.parts, c.offs = append(c.parts, p.Partition), append(c.offs, p.Offset)
}

// finish is the ends as the statements take them.
type finish struct {
	keys, delays    []int64
	hows            []int32
	moved           []bool
	started         []int32
	settled, failed places
	histories       [][]byte
}

func newFinish(p Policy, ends []End) *finish {
	f := &finish{}
	for i := range ends {
		e := &ends[i]
		delay := min(e.Delay, p.MaxAge)
		if e.Then == Again {
			round := e.Round + 1
			if len(e.Settled) > 0 { // another record than was the head
				round = 1
			}
			delay = min(p.delay(e.Delay, round), max(p.MaxAge-e.Age, 0))
			f.failed.add(e.Failed)
			f.histories = append(f.histories, e.History.encode())
		}
		f.keys, f.hows = append(f.keys, e.Key), append(f.hows, int32(e.Then))
		f.delays, f.moved = append(f.delays, millis(delay)), append(f.moved, len(e.Settled) > 0)
		for _, p := range e.Settled {
			f.settled.add(p)
		}
	}
	return f
}
