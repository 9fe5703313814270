package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/record"
)

// route is the name by which the inbox knows what this program has done.
const route = "post-order-to-account"

// member is one member of the consumer group.
type member struct {
	consumer *consumer.Consumer
	end      context.CancelFunc
	done     chan struct{} // closed when Run has returned
	err      error         // what it returned; valid once done is closed
}

func (w *world) config(s settings, hooks *record.Hooks, log *slog.Logger) consumer.Config {
	return consumer.Config{
		Brokers:                w.client.Brokers,
		Group:                  s.group,
		DB:                     w.db,
		Migrate:                true,
		CreateDeadLetterTopics: true,
		SessionTimeout:         s.session,
		Hooks:                  hooks,
		Registry:               prometheus.NewRegistry(),
		Logger:                 log,
	}
}

// join starts a member.
func (w *world) join(ctx context.Context, s settings, hooks *record.Hooks, log *slog.Logger) (*member, error) {
	c, err := consumer.New(w.config(s, hooks, log), consumer.Route[order]{
		Name:    route,
		Topic:   s.topic,
		Apply:   apply,
		Options: consumer.Options{Identity: []dedup.Resolver{dedup.Header(idHeader)}},
	})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	m := &member{consumer: c, end: end, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.err = c.Run(ctx)
	}()
	return m, nil
}

// leave stops a member and gives what its Run returned.
func (m *member) leave() error {
	m.end()
	<-m.done
	return m.err
}
