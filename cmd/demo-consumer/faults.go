package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// kind is what goes wrong with an order.
type kind string

const (
	sound     kind = "sound"
	flaky     kind = "flaky"     // fails twice, then succeeds
	stubborn  kind = "stubborn"  // fails as if it might succeed later, always
	refused   kind = "refused"   // breaks a business rule
	cursed    kind = "cursed"    // makes the handler panic
	cancelled kind = "cancelled" // is to have no effect
	garbled   kind = "garbled"   // its bytes are cut in half
)

// mix is how many of 1,000 orders are of a kind; the rest is sound.
var mix = []struct {
	kind kind
	of   int
}{{flaky, 10}, {stubborn, 2}, {refused, 3}, {cursed, 1}, {cancelled, 5}, {garbled, 2}}

// pick gives the kind of the n-th of 1,000.
func pick(n int) kind {
	for _, m := range mix {
		if n -= m.of; n < 0 {
			return m.kind
		}
	}
	return sound
}

// fate is how a record must end, as its bytes say.
type fate struct {
	outcome record.Outcome
	reason  dlq.Reason // of a dead one
}

// fateOf is the fate of the first record with its identity.
func fateOf(k kind) fate {
	switch k {
	case sound, flaky:
		return fate{outcome: record.Effected}
	case cancelled:
		return fate{outcome: record.Skipped}
	case stubborn:
		return fate{record.Dead, dlq.Exhausted}
	case refused:
		return fate{record.Dead, dlq.Permanent}
	case cursed:
		return fate{record.Dead, dlq.Panic}
	case garbled:
		return fate{record.Dead, dlq.Undecodable}
	}
	return fate{}
}

var errAccountLocked = errors.New("the account is locked at this moment")

const post = `with posted as (insert into postings (topic, order_id, account, amount) values ($1, $2, $3, $4))
update accounts set balance = balance + $4 where topic = $1 and id = $3`

// apply posts an order. What fails fails after the write, so that the write must be undone.
func apply(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
	o := e.Data
	if _, err := tx.Exec(ctx, post, e.Topic, o.ID, o.Account, o.Amount); err != nil {
		return err
	}
	switch o.Kind {
	case flaky:
		if e.Attempt < 3 {
			return fault.Transient(errAccountLocked)
		}
	case stubborn:
		return fault.Transient(errAccountLocked)
	case refused:
		return fault.Permanent(fmt.Errorf("account %d may not be posted to", o.Account))
	case cancelled:
		return fault.Skip("the order was cancelled")
	case cursed:
		panic("an order that nobody thought of")
	case sound, garbled:
	}
	return nil
}
