package member

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/test/attack/load"
)

// CallTimeout is how long a member waits for the service's answer.
const CallTimeout = 2 * time.Second

// Receipt is the answer.
type Receipt struct{ Key string }

// call is a route that asks the service first. Its breaker notices soon that all is well again.
func call(cfg Config) (consumer.AnyRoute, error) {
	service, err := downstream.New(downstream.Config{Name: "service", Breaker: downstream.BreakerConfig{OpenFor: 2 * time.Second}})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: service.Transport(nil)}
	return consumer.CallRoute[load.Order, Receipt]{
		Name: "call", Topic: cfg.Prefix + "source", Options: options(dedup.ByID),
		Dependency: service, Repeat: consumer.RepeatKeyed, CallTimeout: CallTimeout,
		Call: func(ctx context.Context, e consumer.Event[load.Order]) (Receipt, error) {
			return receipt(ctx, client, "http://"+cfg.Service, e.Data)
		},
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[load.Order], _ Receipt) error {
			return execute(ctx, tx, "call", e)
		},
	}, nil
}

func receipt(ctx context.Context, client *http.Client, url string, o load.Order) (r Receipt, err error) {
	body, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	answer, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := downstream.Check(answer); err != nil { //nolint:contextcheck // it reads the body of the request that has one
		return r, err
	}
	return r, json.NewDecoder(answer.Body).Decode(&r)
}
