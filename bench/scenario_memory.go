package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
)

// watchFor is how long the slow handler is looked at.
const watchFor = time.Minute

// memory asks how much a backlog takes: drained at full speed, and behind a handler that does a hundred records a second,
// so that everything that may be fetched ahead has been.
func memory(ctx context.Context, b *bench) error {
	shape := b.shape(8)
	shape.Records = b.backlog
	if err := b.race(ctx, trial{scenario: "memory", shape: shape, field: routes(stores...), rounds: 1}); err != nil {
		return err
	}
	c := headrace("apply", "inbox")
	c.options.SleepMaxMS = 80 // four writers side by side
	c.name += "/slow"
	if !b.joins(c.name) {
		return nil
	}
	run, err := b.behindSlow(ctx, shape, c)
	if err != nil {
		b.results = append(b.results, result.Failed("memory", c.name, shape.Partitions, shape.Records, err))
		return ctx.Err()
	}
	fmt.Printf("  %s: %.0f MB after %s\n", c.name, run.PeakMB, watchFor)
	b.results = append(b.results, result.Of("memory", c.name, shape.Partitions, shape.Records, []result.Run{run}))
	return nil
}

// behindSlow watches a child that never comes to the end of its topic.
func (b *bench) behindSlow(ctx context.Context, shape load.Shape, c contender) (run result.Run, err error) {
	topic, err := load.Fill(ctx, b.brokers, shape)
	if err != nil {
		return run, err
	}
	if err := load.Reset(ctx, b.db, topic.Keys); err != nil {
		return run, err
	}
	p, err := b.launch(c, b.spec(topic, c))
	if err != nil {
		return run, err
	}
	defer p.Kill()
	if err := p.Ready(ctx); err != nil {
		return run, err
	}
	timer := time.NewTimer(watchFor)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return run, ctx.Err()
	}
	u, err := p.Usage()
	if err := errors.Join(err, p.Err()); err != nil {
		return run, err
	}
	if _, err := p.Stop(); err != nil {
		return run, err
	}
	posted, err := load.Posted(ctx, b.db)
	if err == nil && (posted == 0 || posted >= topic.Total()) {
		err = fmt.Errorf("%d of %d posted: that was no backlog", posted, topic.Total())
	}
	return result.Run{PeakMB: u.PeakMB, Rate: float64(p.Seen()) / watchFor.Seconds()}, err
}
