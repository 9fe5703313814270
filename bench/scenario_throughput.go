package main

import (
	"context"
	"slices"
)

// throughput is everybody at the defaults. The limits take their turns among the others, so that a bar that compares with
// them compares what the machine could do in the same minutes.
func throughput(ctx context.Context, b *bench) error {
	field := slices.Concat([]contender{stock()}, routes(stores...), experts(), others(), jvmPeers(), limits())
	for _, partitions := range sizes {
		if err := b.race(ctx, trial{scenario: "throughput", shape: b.shape(partitions), field: field, rounds: b.rounds}); err != nil {
			return err
		}
	}
	return nil
}
