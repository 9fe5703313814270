package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka/stock"
)

// headrace is the ordinary route of the README: a handler that executes its SQL, everything at its default.
type headrace struct {
	stock bool // under watermill-kafka's Subscriber
}

func (h headrace) name() string { return headraceName("Apply", h.stock) }

func headraceName(route string, onStock bool) string {
	if onStock {
		return "Headrace, " + route + ", kafka/stock"
	}
	return "Headrace, " + route
}

func (headrace) inboxRows() string { return `select count(*) from headrace.inbox where state = 0` }

func (h headrace) start(e env, w workload, group string, seen *clock) (func(), error) {
	return startHeadrace(e, group, seen, h.stock, consumer.Route[posting]{
		Name: "post", Topic: w.topic,
		Apply: func(ctx context.Context, tx pgx.Tx, ev consumer.Event[posting]) error {
			seen.first()
			defer seen.done()
			if ev.Data.Poison {
				return fault.Permanent(errPoison)
			}
			return post(ctx, tx, ev.Data)
		},
	})
}

// post is the work of a record.
func post(ctx context.Context, tx pgx.Tx, p posting) error {
	_, err := tx.Exec(ctx, `update accounts set balance = balance + $1 where id = $2`, p.Amount, p.Account)
	return err
}

func startHeadrace(e env, group string, seen *clock, onStock bool, route consumer.AnyRoute) (func(), error) {
	cfg := consumer.Config{
		Brokers: e.brokers, Group: group, DB: e.db, Migrate: true, CreateDeadLetterTopics: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if onStock {
		cfg.Transport = stock.Transport()
	}
	c, err := consumer.New(cfg, route)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			seen.fail(err)
		}
	}()
	return func() { cancel(); <-done }, nil
}
