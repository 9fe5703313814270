package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/internal/topics"
	"github.com/headrace/headrace/kafka"
)

// phase is one kind of outage, from the first order to the count.
type phase struct {
	settings settings
	kind     kind
	world    *world
	topic    string // and the group's, the service's merchant and the connections' name

	service    *payments.Service
	proxy      *proxy
	base       *http.Transport
	meter      *meter
	dependency *downstream.Dependency
	db         *pgxpool.Pool
	admin      *kadm.Client
	watch      *watch
	activity   activity
	released   released
	produced   int
	ledger     ledger
}

// poolConns are the connections of the pool that the consumer is given, beside the inbox's own.
const poolConns = 4

func (p *phase) run(ctx context.Context) error {
	if err := errors.Join(p.openService(ctx), p.openClients(ctx)); err != nil {
		p.close()
		return err
	}
	defer p.close()
	watching, err := p.activity.watch(ctx, p.world.database.DSN(), p.topic, p.settings.slow(time.Second))
	if err != nil {
		return err
	}
	if err := p.consume(ctx); err != nil {
		return err
	}
	if err := watching(); err != nil {
		return err
	}
	return p.count(ctx)
}

func (p *phase) openService(ctx context.Context) (err error) {
	seed, forgetful := p.settings.seed, p.settings.forgetful
	p.service, err = payments.Start(ctx, payments.Config{
		DSN: p.world.database.DatabaseDSN(paymentsDatabase), Merchant: p.topic, Forgetful: forgetful,
		Fault: func(order string) payments.Fault {
			switch {
			case broke(seed, order):
				return payments.Unpaid
			case p.kind.loses && p.watch.away():
				return payments.Lost
			}
			return payments.None
		},
	})
	if err != nil {
		return err
	}
	p.proxy, err = newProxy(p.kind, p.service.URL())
	return err
}

func (p *phase) openClients(ctx context.Context) error {
	var err error
	if p.dependency, err = newDependency(p.watch); err != nil {
		return err
	}
	p.base = &http.Transport{MaxIdleConnsPerHost: places}
	p.meter = &meter{RoundTripper: p.base}
	cfg, err := pgxpool.ParseConfig(p.world.database.DSN())
	if err != nil {
		return err
	}
	cfg.MaxConns = poolConns
	cfg.ConnConfig.RuntimeParams["application_name"] = p.topic // the inbox's own pool takes it over
	if p.db, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	cl, err := kgo.NewClient(p.world.client.Options()...)
	if err != nil {
		return err
	}
	p.admin = kadm.NewClient(cl)
	admin, err := kafka.NewAdmin(p.world.client)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreateTopic(ctx, kafka.TopicSpec{Name: p.topic, Partitions: partitions})
}

func newDependency(w *watch) (*downstream.Dependency, error) {
	return downstream.New(downstream.Config{
		Name: "payments", Breaker: breaker, MaxConcurrent: places, Hooks: w.calls(), RefuseInTransaction: true,
	})
}

func (p *phase) close() {
	if p.base != nil {
		p.base.CloseIdleConnections()
	}
	if p.proxy != nil {
		p.proxy.Stop()
	}
	if p.service != nil {
		p.service.Close()
	}
	if p.db != nil {
		p.db.Close()
	}
	if p.admin != nil {
		p.admin.Close()
	}
}

// consume runs a consumer for as long as the outage and what comes after it take.
func (p *phase) consume(ctx context.Context) error {
	c, err := consumer.New(consumer.Config{
		Brokers: p.world.client.Brokers, Group: p.topic, DB: p.db, Migrate: true, CreateDeadLetterTopics: true,
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Hooks: p.watch.records(),
	}, route(p.topic, p.proxy.url(), p.dependency, p.meter))
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() {
		err := c.Run(running)
		fail(fmt.Errorf("the consumer has ended: %w", err))
		ended <- err
	}()
	err = p.play(ctx)
	end()
	return errors.Join(err, <-ended)
}

// patience is how long anything may take that has no bound of its own.
const patience = time.Minute

// play is the outage under load. What does not come in time is in the figures, and no error.
func (p *phase) play(ctx context.Context) error {
	orders, err := newProducer(p.world.client, p.settings, p.topic)
	if err != nil {
		return err
	}
	select {
	case <-p.watch.assigned: // else the first orders would come in a burst
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	enough, produced := make(chan struct{}), make(chan error, 1)
	go func() { produced <- orders.run(ctx, enough) }()
	err = p.outage(ctx)
	close(enough)
	if err := errors.Join(err, <-produced); err != nil {
		return err
	}
	p.produced = orders.sent
	p.eventually(ctx, func() bool {
		behind, err := topics.Backlog(ctx, p.admin, p.topic, p.topic)
		return err == nil && behind == 0
	})
	return context.Cause(ctx)
}

// outage lets orders flow, cuts, and waits until they flow again.
func (p *phase) outage(ctx context.Context) error {
	p.eventually(ctx, func() bool { return p.watch.answers() >= 2*p.settings.rate }) // for two seconds or so
	p.watch.cut()
	if err := p.proxy.cut(); err != nil {
		return err
	}
	healing := time.NewTimer(p.settings.cut)
	defer healing.Stop()
	if err := p.cancelCalls(ctx); err != nil {
		return err
	}
	select {
	case <-healing.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.watch.heal()
	if err := p.proxy.heal(ctx); err != nil {
		return err
	}
	p.watch.healed()
	again := p.watch.answers()
	p.eventually(ctx, func() bool { return p.watch.answers() >= again+p.settings.rate })
	return context.Cause(ctx)
}

// eventually waits until something holds, or for the end of patience.
func (p *phase) eventually(ctx context.Context, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, p.settings.slow(patience))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
