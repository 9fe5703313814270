package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/payments"
)

// billing is what is done with an order: it is charged, and then posted to its account with the charge's number, together
// with an event that says so.
type billing struct {
	topic    string // whose accounts and postings
	events   string // where it is published that they are charged
	payments string // where orders are charged
	client   *http.Client
	mended   atomic.Bool // the handler's bugs are fixed
}

// call charges an order. Its client sends the Idempotency-Key and says what a failure means.
func (b *billing) call(ctx context.Context, e consumer.Event[order]) (payments.Charge, error) {
	var c payments.Charge
	o := e.Data
	if o.Kind == cancelled {
		return c, nil // and Apply skips it
	}
	body, err := json.Marshal(payments.Request{Order: o.ID, Account: o.Account, Amount: o.Amount})
	if err != nil {
		return c, fault.Permanent(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.payments+"/charges", bytes.NewReader(body))
	if err != nil {
		return c, fault.Permanent(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return fetch[payments.Charge](b.client, r)
}

// fetch reads the answer's JSON.
func fetch[T any](client *http.Client, r *http.Request) (answer T, err error) {
	resp, err := client.Do(r)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }() // there is nothing more to learn
	return downstream.DecodeJSON[T](resp)
}

var errAccountLocked = errors.New("the account is locked at this moment")

const post = `with posted as (insert into postings (topic, order_id, account, amount, charge_id) values ($1, $2, $3, $4, $5))
update accounts set balance = balance + $4 where topic = $1 and id = $3`

// apply posts a charged order. What fails fails after the write, so that the write must be undone.
func (b *billing) apply(ctx context.Context, tx pgx.Tx, e consumer.Event[order], c payments.Charge) error {
	o := e.Data
	if _, err := tx.Exec(ctx, post, b.topic, o.ID, o.Account, o.Amount, c.ID); err != nil {
		return err
	}
	if o.Kind == cancelled {
		return fault.Skip("the order was cancelled")
	}
	if err := publish(tx, b.events, o, c); err != nil {
		return err
	}
	if b.mended.Load() {
		return nil
	}
	return fail(o, e.Attempt)
}

// fail is the bug that an order of the kind meets.
func fail(o order, attempt int) error {
	switch o.Kind {
	case flaky:
		if attempt < 3 {
			return fault.Transient(errAccountLocked)
		}
	case stubborn:
		return fault.Transient(errAccountLocked)
	case refused:
		return fault.Permanent(fmt.Errorf("account %d may not be posted to", o.Account))
	case cursed:
		panic("an order that nobody thought of")
	case sound, cancelled, garbled, overloaded, limited, lost, slow, unpaid:
	}
	return nil
}
