package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
)

type Receipt struct{ ID string }

// charger charges orders at a payment service that carries out each Idempotency-Key once.
type charger struct{ client *http.Client }

// charge is called at least once for an order, always with the same key, which the Transport sends. The body is made of
// the event alone: under one key it must always be the same.
func (c charger) charge(ctx context.Context, e consumer.Event[OrderPlaced]) (r Receipt, err error) {
	body, err := json.Marshal(e.Data)
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://payments.example/charges", bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return r, err // it says what it means: tried again, held, or unknown whether it was carried out
	}
	defer func() { _ = resp.Body.Close() }()
	return downstream.DecodeJSON[Receipt](resp) // so does a page to log in with that comes in the answer's place
}

// settle runs exactly once for an order, in the transaction of the inbox.
func settle(ctx context.Context, tx pgx.Tx, e consumer.Event[OrderPlaced], r Receipt) error {
	_, err := tx.Exec(ctx, `insert into receipts (account, amount, receipt) values ($1, $2, $3)`, e.Data.Account, e.Data.Amount, r.ID)
	return err
}

// A route that calls a payment service and writes down its receipts.
func ExampleCallRoute() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/billing") // connects when it is used
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := consumer.New(consumer.Config{
		Brokers: []string{"localhost:9092"},
		Group:   "billing",
		DB:      pool,
	},
		consumer.CallRoute[OrderPlaced, Receipt]{
			Name:       "charge-order", // permanent: the inbox and the idempotency keys are made of it
			Topic:      "orders",
			Dependency: payments,
			Repeat:     consumer.RepeatKeyed,
			Call:       charger{&http.Client{Transport: payments.Transport(nil)}}.charge,
			Apply:      settle,
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Plan()[0])
	// Output:
	// budget of a record of route "charge-order":
	//     3 attempts x CallTimeout 10s            30s
	//   + 3 attempts x AttemptTimeout 5s          15s
	//   + 2 back-offs from 200ms up to 10s      600ms
	//   + DeadLetterTimeout                       10s
	//   + CommitReserve                            5s
	//   =                                      1m0.6s, within MaxPollInterval 5m
}

// After a crash nobody knows whether a call was carried out, so it is made again. A route must say why it may be.
func ExampleCallRoute_refused() {
	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = consumer.New(consumer.Config{Brokers: []string{"localhost:9092"}, Group: "billing", DB: new(pgxpool.Pool)},
		consumer.CallRoute[OrderPlaced, Receipt]{
			Name: "charge-order", Topic: "orders", Dependency: payments, Call: charger{}.charge, Apply: settle,
		},
	)
	fmt.Println(err)
	// Output:
	// the consumer cannot start, 1 problem:
	// - route "charge-order" does not say why its call may be made again: after a crash or a lost answer nobody knows whether it was carried out
	//     fix: set Repeat to RepeatKeyed, if the dependency carries out each Idempotency-Key once, to RepeatSafe, if the call changes nothing, or to RepeatReconciled, if it can be asked; a call that is none of them cannot be made safely
}
