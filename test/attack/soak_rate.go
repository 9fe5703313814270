package main

import (
	"context"
	"time"

	"github.com/headrace/headrace/internal/backoff"
)

const (
	// A backlog is of so many records, and written no faster, and no longer.
	backlog     = 60_000
	backlogRate = 10_000
	backlogTime = time.Minute
	// slowest is how long the members may have it before them: a machine that is busy with other things has a low top rate, and
	// a soak all the same.
	slowest = 10 * time.Minute
)

// middleSQL is how long the middle eight tenths of all effects took. What is before is the joining of the group, and behind it
// only what was tried again or parked.
const middleSQL = `select extract(epoch from percentile_disc(0.9) within group (order by at) - percentile_disc(0.1) within group (order by at))::float8
	from effects`

// topRate writes a backlog and has it read: records a second until all routes are done with them.
func (k *soak) topRate(ctx context.Context) (float64, error) {
	l := k.load(ctx, k.seed+1, backlogRate) // a seed of its own: the same ids again would be duplicates
	for end := time.Now().Add(backlogTime); k.tally.records() < backlog && time.Now().Before(end) && backoff.Wait(ctx, time.Second); {
	}
	var n int64
	for _, w := range l.Stop() {
		n += w.Records
	}
	if err := drain(ctx, k.site, slowest); err != nil {
		return 0, err
	}
	var seconds float64
	err := ask(ctx, k.site, middleSQL, nil, &seconds)
	return 0.8 * float64(n) / max(seconds, 1), err
}
