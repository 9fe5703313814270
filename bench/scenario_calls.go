package main

import (
	"context"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
)

// calls is a handler that asks a service before it writes: one POST over HTTP that is answered after 5 ms, then the same
// UPDATE and inbox row as in throughput. Beside it stands the route without the call.
func calls(ctx context.Context, b *bench) error {
	svc, stop, err := startPayments(ctx)
	if err != nil {
		return err
	}
	defer stop()
	field := append([]contender{{name: result.Stock, mode: "stock-call", books: load.StockInbox}}, callers()...)
	field = append(field, silent(headrace("apply", "inbox")), silent(headrace("queue", "inbox")))
	// The stock stack makes one call a partition at a time: with more of them there is more to do in the same time.
	for _, shape := range []load.Shape{{Partitions: 1, Records: b.calls}, {Partitions: 8, Records: 4 * b.calls}} {
		shape.Keys, shape.Orders = b.keys, true
		if err := b.race(ctx, trial{scenario: "calls", shape: shape, field: field, rounds: b.rounds, service: svc}); err != nil {
			return err
		}
	}
	return nil
}

// sleep is the scenario that Parallel Consumer publishes its figures for, with the inbox row and the UPDATE behind it.
// Headrace sleeps where it would call; what sleeps inside a transaction is there too.
func sleep(ctx context.Context, b *bench) error {
	const most, asPublished = 5, 10_000
	slow := func(c contender) contender {
		c.options.SleepMaxMS, c.change = most, nil
		return c
	}
	route := contender{name: "headrace-call", mode: "headrace-call", books: load.Inbox}
	field := []contender{
		slow(stock()), slow(route), slow(route).with("in-flight-256", func(o *child.Options) { o.InFlight = 256 }),
		slow(headrace("apply", "inbox")),
	}
	for _, c := range jvmPeers() {
		if c.mode == "parallel-record" || c.mode == "spring-record-ack-batch" {
			field = append(field, slow(c))
		}
	}
	shape := b.shape(1)
	shape.Records = min(asPublished, b.records)
	return b.race(ctx, trial{scenario: "sleep", shape: shape, field: field, rounds: b.rounds})
}
