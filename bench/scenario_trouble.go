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

// compare lets each route run over the ordinary topic and over a changed one, in turn.
func (b *bench) compare(ctx context.Context, scenario string, change func(*load.Shape)) error {
	var field []contender
	for _, c := range routes("inbox") {
		field = append(field, c.over(without, nil), c.over(with, change))
	}
	return b.race(ctx, trial{scenario: scenario, shape: b.shape(8), field: field, rounds: b.rounds})
}
