package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/payments"
)

// routeName is what the inbox and the idempotency keys know.
const routeName = "charge"

// route charges each order, and books the charge.
func route(topic, url string, d *downstream.Dependency, base http.RoundTripper) consumer.AnyRoute {
	client := &http.Client{Transport: d.Transport(base)}
	return consumer.CallRoute[payments.Request, payments.Charge]{
		Name: routeName, Topic: topic, Dependency: d, Repeat: consumer.RepeatKeyed, CallTimeout: callTimeout,
		Call: func(ctx context.Context, e consumer.Event[payments.Request]) (payments.Charge, error) {
			return charge(ctx, client, url, e.Data)
		},
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[payments.Request], c payments.Charge) error {
			_, err := tx.Exec(ctx, `insert into bookings (topic, order_id, charge_id) values ($1, $2, $3)`, topic, e.Data.Order, c.ID)
			return err
		},
		Options: consumer.Options{
			Attempts: attempts, BackoffBase: 100 * time.Millisecond, BackoffCap: time.Second,
			Identity: []dedup.Resolver{dedup.Header(idHeader)},
		},
	}
}

func charge(ctx context.Context, client *http.Client, url string, q payments.Request) (c payments.Charge, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return c, fault.Permanent(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", bytes.NewReader(body))
	if err != nil {
		return c, fault.Permanent(err)
	}
	return fetch(client, r)
}

// fetch reads the answer's JSON.
func fetch(client *http.Client, r *http.Request) (c payments.Charge, err error) {
	resp, err := client.Do(r)
	if err != nil {
		return c, err
	}
	defer func() { _ = resp.Body.Close() }() // there is nothing more to learn
	return downstream.DecodeJSON[payments.Charge](resp)
}

// meter counts what is really sent.
type meter struct {
	http.RoundTripper
	sent, now, peak atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (m *meter) RoundTrip(r *http.Request) (*http.Response, error) {
	m.sent.Add(1)
	now := m.now.Add(1)
	defer m.now.Add(-1)
	for {
		if peak := m.peak.Load(); now <= peak || m.peak.CompareAndSwap(peak, now) {
			return m.RoundTripper.RoundTrip(r)
		}
	}
}
