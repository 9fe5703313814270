package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/sony/gobreaker"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
)

// calls is a handler that asks a service before it writes: one POST over HTTP that is answered after 5 ms, then the same
// UPDATE and inbox row as in the throughput part.
func calls(ctx context.Context, e env, s settings) error {
	field, err := s.field(map[string]contender{
		"stock": callStock{}, "headrace": callHeadrace{}, "headrace-stock": callHeadrace{stock: true},
	})
	if err != nil {
		return err
	}
	service, stop, err := startPayments(ctx)
	if err != nil {
		return err
	}
	defer stop()
	// The stock stack makes one call a partition at a time: with more of them there is more to do in the same time.
	for _, shape := range []workload{{partitions: 1, records: s.calls}, {partitions: 8, records: 4 * s.calls}} {
		shape.keys, shape.service = s.keys, service
		w, err := produce(ctx, e.brokers, shape, 0)
		if err != nil {
			return err
		}
		rates, err := race(ctx, e, w, s.rounds, field...)
		if err != nil {
			return err
		}
		compare("calls", w, rates, field)
	}
	return nil
}

// callStock is Watermill's own way: its CircuitBreaker inside its Retry, and an http.Client in the handler.
type callStock struct{}

func (callStock) name() string { return "stock Watermill" }

func (callStock) inboxRows() string { return stockStack{}.inboxRows() }

func (callStock) start(e env, w workload, group string, seen *clock) (func(), error) {
	httpClient := &http.Client{Transport: client(), Timeout: 10 * time.Second}
	breaker := middleware.NewCircuitBreaker(gobreaker.Settings{Name: "payments"})
	router, err := stockRouter(e, w, group, func(msg *message.Message) error {
		seen.first()
		var p posting
		if err := json.Unmarshal(msg.Payload, &p); err != nil {
			return err
		}
		if err := w.service.ask(msg.Context(), httpClient, p); err != nil {
			return err
		}
		return stockPost(msg, e.db, p, seen)
	}, breaker.Middleware)
	if err != nil {
		return nil, err
	}
	stop := runStock(router, seen)
	return func() { stop(); httpClient.CloseIdleConnections() }, nil
}

// ask is the call as one writes it by hand.
func (s *service) ask(ctx context.Context, c *http.Client, p posting) error {
	req, err := s.charge(ctx, p)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the payment service answered %s", resp.Status)
	}
	return decodeReceipt(resp, new(receipt))
}

func decodeReceipt(resp *http.Response, r *receipt) error {
	if err := json.NewDecoder(resp.Body).Decode(r); err != nil {
		return err
	}
	if r.ID == "" {
		return errors.New("the payment service gave no receipt")
	}
	return nil
}

// callHeadrace is the CallRoute of the README, everything at its default.
type callHeadrace struct {
	stock bool // under watermill-kafka's Subscriber
}

func (c callHeadrace) name() string { return headraceName("CallRoute", c.stock) }

func (callHeadrace) inboxRows() string { return headrace{}.inboxRows() }

func (c callHeadrace) start(e env, w workload, group string, seen *clock) (func(), error) {
	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		return nil, err
	}
	httpClient := &http.Client{Transport: payments.Transport(client())}
	stop, err := startHeadrace(e, group, seen, c.stock, consumer.CallRoute[posting, receipt]{
		Name: "charge", Topic: w.topic, Dependency: payments, Repeat: consumer.RepeatKeyed,
		Call: func(ctx context.Context, ev consumer.Event[posting]) (r receipt, err error) {
			seen.first()
			req, err := w.service.charge(ctx, ev.Data)
			if err != nil {
				return r, err
			}
			resp, err := httpClient.Do(req)
			if err != nil {
				return r, err
			}
			defer func() { _ = resp.Body.Close() }()       // it was read
			if err := downstream.Check(resp); err != nil { //nolint:contextcheck // the context is the request's
				return r, err
			}
			return r, decodeReceipt(resp, &r)
		},
		Apply: func(ctx context.Context, tx pgx.Tx, ev consumer.Event[posting], _ receipt) error {
			defer seen.done()
			return post(ctx, tx, ev.Data)
		},
	})
	if err != nil {
		return nil, err
	}
	return func() { stop(); httpClient.CloseIdleConnections() }, nil
}
