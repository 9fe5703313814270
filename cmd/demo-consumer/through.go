package main

import (
	"context"
	"errors"
	"time"

	"github.com/headrace/headrace/internal/topics"
)

// watchBacklog keeps the live line's backlog fresh while records are still being produced.
func (d *demo) watchBacklog(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n, err := topics.Backlog(ctx, d.admin, d.settings.group, d.settings.topic); err == nil {
			d.behind.Store(n)
		}
	}
}

// drain waits until everything is through: the broker says that the group has committed all, nothing is parked, and the
// second group has committed the events of all that.
func (d *demo) drain(ctx context.Context) error {
	return until(ctx, func() (int64, error) {
		n, err := topics.Backlog(ctx, d.admin, d.settings.group, d.settings.topic)
		d.behind.Store(n)
		if err != nil || n > 0 {
			return n, err
		}
		if n, err = d.parked(ctx); err != nil || n > 0 {
			return n, err
		}
		return d.untold(ctx)
	})
}

// parked is how many records are tried again later.
func (d *demo) parked(ctx context.Context) (n int64, err error) {
	const query = `select count(*) from headrace.parked_records where consumer_id =
		(select id from headrace.consumers where consumer_group = $1 and route = $2)`
	err = d.world.db.QueryRow(ctx, query, d.settings.group, route).Scan(&n)
	return n, err
}

// untold is how many events wait in the outbox, or for the second consumer.
func (d *demo) untold(ctx context.Context) (n int64, err error) {
	events := chargedTopic(d.settings.topic)
	if err = d.world.db.QueryRow(ctx, `select count(*) from headrace.outbox where topic = $1`, events).Scan(&n); err != nil || n > 0 {
		return n, err
	}
	return topics.Backlog(ctx, d.admin, noticeGroup(d.settings.group), events)
}

// tell waits for the second consumer, once the first one has ended.
func (d *demo) tell(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the second consumer has not read all events"))
	defer cancel()
	return until(ctx, func() (int64, error) { return d.untold(ctx) })
}

// until waits until nothing is left, or ctx ends.
func until(ctx context.Context, left func() (int64, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := left()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
