package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/jackc/pgx/v5"
)

// headrace is the ordinary route of the README: a handler that executes its SQL, everything at its default.
type headrace struct{}

func (headrace) name() string { return "Headrace, Apply" }

func (headrace) inboxRows() string { return `select count(*) from headrace.inbox where state = 0` }

func (headrace) start(e env, w workload, group string, seen *clock) (func(), error) {
	return startHeadrace(e, group, seen, consumer.Route[posting]{
		Name: "post", Topic: w.topic,
		Apply: func(ctx context.Context, tx pgx.Tx, ev consumer.Event[posting]) error {
			seen.first()
			defer seen.done()
			if ev.Data.Poison {
				return fault.Permanent(errPoison)
			}
			_, err := tx.Exec(ctx, `update accounts set balance = balance + $1 where id = $2`, ev.Data.Amount, ev.Data.Account)
			return err
		},
	})
}

func startHeadrace(e env, group string, seen *clock, route consumer.AnyRoute) (func(), error) {
	c, err := consumer.New(consumer.Config{
		Brokers: e.brokers, Group: group, DB: e.db, Migrate: true, CreateDeadLetterTopics: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}, route)
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
