package main

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
)

// parkings asks how many records a second a route parks, and how many it takes out again through its whole stack, each
// with its effect: while nothing else is parked, and while a million others wait. Each record has a key of its own, which
// is the dearest case: a line a record.
func parkings(ctx context.Context, b *bench) error {
	const partitions = 8
	for _, waiting := range []int{0, b.backlog} {
		if err := b.parkOthers(ctx, waiting); err != nil {
			return err
		}
		name := "headrace"
		if waiting > 0 {
			name += "/others-wait"
		}
		var in, out []result.Run
		for round := range b.rounds {
			topic, err := load.Fill(ctx, b.brokers, load.Shape{Partitions: partitions, Records: b.records, Keys: b.records})
			if err != nil {
				return err
			}
			p, err := b.parkedRun(ctx, topic, int64(waiting))
			if err != nil {
				return err
			}
			fmt.Printf("  round %d of %d: %-36s %8.0f/s in %8.0f/s out\n", round+1, b.rounds, name, p.in, p.out)
			in, out = append(in, result.Run{Rate: p.in}), append(out, result.Run{Rate: p.out})
		}
		b.results = append(b.results,
			result.Of("parking-in", name, partitions, b.records, in), result.Of("parking-out", name, partitions, b.records, out))
	}
	return b.parkOthers(ctx, 0)
}
