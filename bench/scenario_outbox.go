package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
)

// outboxes asks two things: how many events a second get from their transactions into Kafka, when a produce takes 3 ms,
// against watermill-sql with Watermill's forwarder; and what an event a record costs a route.
func outboxes(ctx context.Context, b *bench) error {
	if err := b.relays(ctx); err != nil {
		return err
	}
	events, err := load.Create(ctx, b.brokers, load.Shape{Partitions: 8})
	if err != nil {
		return err
	}
	var field []contender
	for _, c := range routes("inbox") {
		field = append(field, c, c.with("outbox", func(o *child.Options) { o.Events = events.Name }))
	}
	return b.race(ctx, trial{scenario: "outbox-route", shape: b.shape(8), field: field, rounds: b.rounds})
}

// relays lets the outboxes take turns.
func (b *bench) relays(ctx context.Context) error {
	field := []struct {
		name   string
		events int // watermill-sql publishes one at a time: its rate is the same from the first second to the last
		build  buildRelay
	}{
		{"headrace", b.records, newHeadraceRelay},
		{"watermill-sql", max(b.records/50, 1), newWatermillRelay},
	}
	runs, out := make([][]result.Run, len(field)), make([]error, len(field))
	for round := range b.rounds {
		for i, c := range field {
			if out[i] != nil {
				continue
			}
			rate, err := b.relayed(ctx, c.events, c.build)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			said := fmt.Sprintf("%8.0f events/s", rate)
			if err != nil {
				said = "FAILED: " + err.Error()
			}
			fmt.Printf("  round %d of %d: %-36s %s\n", round+1, b.rounds, c.name, said)
			runs[i], out[i] = append(runs[i], result.Run{Rate: rate}), err
		}
	}
	for i, c := range field {
		if out[i] != nil {
			b.results = append(b.results, result.Failed("outbox", c.name, relayPartitions, c.events, out[i]))
			continue
		}
		b.results = append(b.results, result.Of("outbox", c.name, relayPartitions, c.events, runs[i]))
	}
	return nil
}

var errMissing = errors.New("not every event arrived")
