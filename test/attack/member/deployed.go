package member

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/test/attack/load"
)

// Bug is what a deploy has got wrong: everything fails, at the very end of the work.
type Bug string

const (
	// Fails returns an error.
	Fails Bug = "fails"
	// Panics panics.
	Panics Bug = "panics"
)

// FloodRun is how many records in a row a process lets die of a partition of the deployed topic.
const FloodRun = 30

// Deployed is the topic whose handlers a deploy breaks. Nothing is wrong with its records, and nobody replays them.
func Deployed(prefix string) string { return prefix + "deployed" }

func deployed(cfg Config) []consumer.AnyRoute {
	return []consumer.AnyRoute{
		consumer.Route[load.Order]{
			Name: "deployed", Topic: Deployed(cfg.Prefix), Options: guarded(dedup.ByID),
			Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[load.Order]) error {
				return cfg.Bug.after(execute(ctx, tx, "deployed", e))
			},
		},
		consumer.BatchRoute[load.Order]{
			Name: "deployed-offset", Topic: Deployed(cfg.Prefix), Options: guarded(dedup.ByOffset),
			Apply: func(ctx context.Context, tx pgx.Tx, es []consumer.Event[load.Order]) error {
				return cfg.Bug.after(together(ctx, tx, "deployed-offset", es))
			},
		},
	}
}

// guarded has a flood guard that refuses soon.
func guarded(store dedup.Store) consumer.Options {
	o := options(store)
	o.Flood = middleware.NewFloodGuard(middleware.FloodConfig{Run: FloodRun, Probe: time.Second})
	return o
}

// after fails work that was done.
func (b Bug) after(err error) error {
	switch {
	case err != nil || b == "":
		return err
	case b == Panics:
		panic("attack: a bad deploy")
	}
	return errors.New("a bad deploy")
}
