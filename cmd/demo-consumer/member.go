package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// route is the name by which the inbox and the idempotency keys know what this program does.
const route = "post-order-to-account"

// attempts leave room for an order's own faults and the edges of an outage, whose failures may be charged.
const attempts = 5

// member is one member of the consumer group.
type member struct {
	consumer *consumer.Consumer
	end      context.CancelFunc
	done     chan struct{} // closed when Run has returned
	err      error         // what it returned; valid once done is closed
}

func (d *demo) config(hooks *record.Hooks) consumer.Config {
	s := d.settings
	registry := prometheus.NewRegistry()
	registry.MustRegister(d.keys)
	cfg := consumer.Config{
		Brokers:                d.world.client.Brokers,
		Group:                  s.group,
		DB:                     d.world.db,
		Migrate:                true,
		CreateDeadLetterTopics: true,
		SessionTimeout:         s.session,
		HeartbeatInterval:      min(time.Second, s.session/3),
		Hooks:                  hooks,
		Registry:               registry,
		Logger:                 d.log,
		Outbox:                 &outbox.Config{Lease: 2 * time.Second}, // whichever member it is that sends
	}
	if s.transport == watermillKafka {
		cfg.Transport = stock.Transport()
	}
	return cfg
}

// route is what every member does.
func (d *demo) route() consumer.AnyRoute {
	return consumer.CallRoute[order, payments.Charge]{
		Name:        route,
		Topic:       d.settings.topic,
		Dependency:  d.dependency,
		NoFallback:  true, // it is money
		Repeat:      consumer.RepeatKeyed,
		CallTimeout: callTimeout,
		Call:        d.billing.call,
		Apply:       d.billing.apply,
		Options: d.park(consumer.Options{
			Store:    d.store(),
			Attempts: attempts, BackoffBase: 100 * time.Millisecond, BackoffCap: time.Second,
			Identity: []dedup.Resolver{dedup.Header(idHeader)}, // with the offset store, of the calls alone
		}),
	}
}

func (d *demo) store() dedup.Store {
	if d.settings.byOffset() {
		return dedup.ByOffset
	}
	return dedup.ByID
}

// join starts a member. The channel closes when it has its first partition.
func (d *demo) join(ctx context.Context, name string) (*member, <-chan struct{}, error) {
	hooks, assigned := signalled(d.tally.hooks(name))
	m, err := d.startMember(ctx, d.config(hooks), d.route())
	return m, assigned, err
}

// startMember starts a member of any group.
func (d *demo) startMember(ctx context.Context, cfg consumer.Config, r consumer.AnyRoute) (*member, error) {
	c, err := consumer.New(cfg, r)
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
