package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
)

const (
	// The database is asked every pollEvery at the end of a run, every nowAndThen when the handlers have seen nearly
	// everything, and every seldomEvery before.
	pollEvery   = 3 * time.Millisecond
	nowAndThen  = 50 * time.Millisecond
	seldomEvery = 500 * time.Millisecond
	// stalled is after what time without any progress a run has failed.
	stalled = time.Minute
)

// finish knows how far a run is.
type finish struct {
	b     *bench
	p     *child.Process
	topic *load.Topic
	books load.Books

	seen         int   // by the handlers
	posted       int64 // to the accounts
	moved, asked time.Time
}

func newFinish(b *bench, p *child.Process, topic *load.Topic, books load.Books) *finish {
	now := time.Now()
	return &finish{b: b, p: p, topic: topic, books: books, moved: now, asked: now}
}

// begin waits for the first record's handler, and says when that began and what the child had taken by then: joining the
// group is not measured. All children tell FIRST.
func (f *finish) begin(ctx context.Context) (first time.Time, used child.Usage, err error) {
	err = f.poll(ctx, func() (bool, error) {
		var begun bool
		first, begun = f.p.First()
		return begun, nil
	})
	if err != nil {
		return first, used, err
	}
	used, err = f.p.Usage()
	return first, used, err
}

// wait waits until the effects of all records are committed.
func (f *finish) wait(ctx context.Context) error {
	return f.poll(ctx, func() (bool, error) { return f.look(ctx) })
}

// told waits until the child has told when the effects of so many records were committed: the driver may see the last
// COMMIT before the child does.
func (f *finish) told(ctx context.Context, records int) error {
	return f.poll(ctx, func() (bool, error) { return f.p.Took() >= records, nil })
}

func (f *finish) poll(ctx context.Context, look func() (over bool, err error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := f.p.Err(); err != nil {
			return err
		}
		if over, err := look(); over || err != nil {
			return err
		}
		if time.Since(f.moved) > stalled {
			return fmt.Errorf("nothing moved for %s: %d of %d records seen, %d of %d posted",
				stalled, f.seen, f.topic.Records, f.posted, f.topic.Total())
		}
	}
}

func (f *finish) look(ctx context.Context) (over bool, err error) {
	if seen := f.p.Seen(); seen != f.seen {
		f.seen, f.moved = seen, time.Now()
	}
	if f.books == load.Nothing {
		return f.seen >= f.topic.Records, nil
	}
	if time.Since(f.asked) < f.patience() {
		return false, nil
	}
	return f.ask(ctx)
}

// patience is how long the database is left alone: asking it slows what is measured. What children say is up to a
// twentieth of a second old, so the last records are not waited for; and handlers that run again have seen everything
// long before it is committed.
func (f *finish) patience() time.Duration {
	const nearly = 97
	switch {
	case f.seen < (f.topic.Fresh+f.topic.Dead)*nearly/100:
		return seldomEvery
	case f.posted < f.topic.Total()*nearly/100:
		return nowAndThen
	}
	return pollEvery
}

func (f *finish) ask(ctx context.Context) (over bool, err error) {
	f.asked = time.Now()
	posted, err := load.Posted(ctx, f.b.db)
	if err != nil {
		return false, err
	}
	if posted != f.posted {
		f.posted, f.moved = posted, time.Now()
	}
	if posted < f.topic.Total() {
		return false, nil
	}
	return load.Buried(ctx, f.b.db, f.topic)
}
