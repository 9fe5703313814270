package main

import (
	"context"
	"net/http"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/idempotency/idemprom"
	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/record"
)

// callTimeout is how long a charge may take.
const callTimeout = 2 * time.Second

// breaker is more nervous than the default, so that an outage of seconds opens it.
var breaker = downstream.BreakerConfig{MinRequests: 20, FailureRatio: 0.5, Window: 2 * callTimeout, OpenFor: 2 * time.Second}

// openPayments starts the payment service and makes what calls it: one dependency, and so one breaker, for all members.
func (d *demo) openPayments(ctx context.Context) error {
	s := d.settings
	d.keys = idemprom.New()
	service, err := payments.Start(ctx, payments.Config{
		Bank: ofBank, DSN: d.world.paymentsDSN, Merchant: s.topic, Slow: 2 * callTimeout, Hooks: d.keys.Hooks(), Logger: d.log,
		Fault: func(order string) payments.Fault { return paymentFault(kindOf(s.seed, order)) },
	})
	if err != nil {
		return err
	}
	d.payments = service
	d.dependency, err = downstream.New(downstream.Config{
		Name: "payments", Breaker: breaker, Hooks: &record.Hooks{OnBreaker: d.tally.breaker},
		RefuseInTransaction: true, // the demo calls before its transactions, and shows it
	})
	if err != nil {
		return err
	}
	d.transport = connections(d.dependency.Config().MaxConcurrent)
	d.billing = &billing{
		topic: s.topic, events: chargedTopic(s.topic), payments: service.URL(),
		client: &http.Client{Transport: d.dependency.Transport(d.transport)},
	}
	return d.openNotices()
}

// connections is a transport that keeps as many connections as there may be calls.
func connections(calls int) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = calls
	return t
}

// mend ends everything that is wrong with single orders, so that those that died of it may be replayed.
func (d *demo) mend() {
	d.payments.Mend()
	d.billing.mended.Store(true)
}
