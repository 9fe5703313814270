package main

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/bench/internal/child"
)

// shapes has what throughput leaves out of orders and group sizes.
func shapes(ctx context.Context, b *bench) error {
	field := []contender{stock(), underStock()}
	for _, c := range routes(stores...) {
		field = append(field,
			c.with("by-partition", byPartition),
			c.with("one-by-one", oneByOne).over("", aQuarter),
			c.with("by-partition", byPartition).with("one-by-one", oneByOne).over("", aQuarter),
		)
	}
	for _, partitions := range sizes {
		if err := b.race(ctx, trial{scenario: "shapes", shape: b.shape(partitions), field: field, rounds: b.rounds}); err != nil {
			return err
		}
	}
	return nil
}

func byPartition(o *child.Options) { o.Order = "partition" }
func oneByOne(o *child.Options)    { o.MaxBatch = 1 }

// scaling asks what more partitions bring.
func scaling(ctx context.Context, b *bench) error {
	for _, partitions := range []int32{1, 2, 4, 8, 16} {
		t := trial{scenario: "scaling", shape: b.shape(partitions), field: routes("inbox"), rounds: b.rounds}
		if err := b.race(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// lanes asks what more messages of one partition side by side bring.
func lanes(ctx context.Context, b *bench) error {
	var field []contender
	for _, c := range routes("inbox") {
		for _, n := range []int{1, 2, 4, 8} {
			field = append(field, c.with(fmt.Sprintf("lanes-%d", n), func(o *child.Options) { o.Lanes = n }))
		}
	}
	return b.race(ctx, trial{scenario: "lanes", shape: b.shape(1), field: field, rounds: b.rounds})
}

// groups asks what larger transactions bring.
func groups(ctx context.Context, b *bench) error {
	var field []contender
	for _, c := range routes("inbox") {
		for _, n := range []int{1, 10, 100, 500, 2000} {
			bound := c.with(fmt.Sprintf("batch-%d", n), func(o *child.Options) { o.MaxBatch = n })
			if n == 1 {
				bound = bound.over("", aQuarter)
			}
			field = append(field, bound)
		}
	}
	return b.race(ctx, trial{scenario: "groups", shape: b.shape(8), field: field, rounds: b.rounds})
}
