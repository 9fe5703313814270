package main

import (
	"context"
	"slices"
	"strings"

	"github.com/headrace/headrace/bench/internal/load"
)

// throughput is everybody at the defaults. The limits take their turns among the others, so that a bar that compares with
// them compares what the machine could do in the same minutes.
func throughput(ctx context.Context, b *bench) error {
	field := slices.Concat([]contender{stock()}, routes(stores...), experts(), others(), jvmPeers(), limits())
	for i := range field {
		if c := &field[i]; c.change == nil && !strings.HasPrefix(c.name, "headrace-apply") {
			c.change = fourTimes
		}
	}
	for _, partitions := range sizes {
		if err := b.race(ctx, trial{scenario: "throughput", shape: b.shape(partitions), field: field, rounds: b.rounds}); err != nil {
			return err
		}
	}
	return nil
}

// fourTimes is for those who put hundreds of records into a transaction: what they make of 100,000 is over in a second, in
// which starting and ending are a third.
func fourTimes(s *load.Shape) { s.Records *= 4 }
