package main

import (
	"context"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
)

// hot has all records of all partitions write one row: transactions side by side can only wait for each other.
func hot(ctx context.Context, b *bench) error {
	field := []contender{stock()}
	for _, c := range routes("inbox") {
		field = append(field, c, c.with("one-writer", func(o *child.Options) { o.Writers = 1 }))
	}
	shape := b.shape(8)
	shape.Hot = true
	return b.race(ctx, trial{scenario: "hot", shape: shape, field: field, rounds: b.rounds})
}

// The two topics of a comparison of Headrace with itself.
const (
	without = "/without"
	with    = "/with"
)

// duplicates asks what copies cost that a producer sent. The offset store does not know them, and does not play.
func duplicates(ctx context.Context, b *bench) error {
	return b.compare(ctx, "duplicates", func(s *load.Shape) { s.Twice = 5 })
}

// poison asks what records cost that can never succeed.
func poison(ctx context.Context, b *bench) error {
	return b.compare(ctx, "poison", func(s *load.Shape) { s.Poison = 100 })
}

// failingKeys asks what the other keys wait for when a fifth of all keys fails for ever. A run is over with the last effect of
// a key that does not; its rate is of all records, as without them.
func failingKeys(ctx context.Context, b *bench) error {
	return b.beside(ctx, "failing", b.keys, aFifthFails)
}

// failingFewKeys asks the same of keys that have hundreds of records each, which pile up behind one that fails.
func failingFewKeys(ctx context.Context, b *bench) error {
	return b.beside(ctx, "failing-few", fewKeys, aFifthFails)
}

// stuckKey asks what the others wait for when one key's handlers hang.
func stuckKey(ctx context.Context, b *bench) error {
	return b.beside(ctx, "stuck", b.keys, func(s *load.Shape) { s.Stuck = true })
}

const fewKeys = 100

func aFifthFails(s *load.Shape) { s.Failing = 5 }

// beside is compare at each size, with so many keys.
func (b *bench) beside(ctx context.Context, scenario string, keys int, change func(*load.Shape)) error {
	for _, partitions := range sizes {
		shape := b.shape(partitions)
		shape.Keys = keys
		if err := b.compareOn(ctx, scenario, shape, change); err != nil {
			return err
		}
	}
	return nil
}

// compare lets each route run over the ordinary topic and over a changed one, in turn.
func (b *bench) compare(ctx context.Context, scenario string, change func(*load.Shape)) error {
	return b.compareOn(ctx, scenario, b.shape(8), change)
}

func (b *bench) compareOn(ctx context.Context, scenario string, shape load.Shape, change func(*load.Shape)) error {
	var field []contender
	for _, c := range routes("inbox") {
		field = append(field, c.over(without, nil), c.over(with, change))
	}
	return b.race(ctx, trial{scenario: scenario, shape: shape, field: field, rounds: b.rounds})
}
