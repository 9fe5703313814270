package main

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/record"
)

// kind is what goes wrong with an order.
type kind string

const (
	sound     kind = "sound"
	flaky     kind = "flaky"     // its posting fails twice, then succeeds
	stubborn  kind = "stubborn"  // its posting fails as if it might succeed later, always
	refused   kind = "refused"   // breaks a business rule
	cursed    kind = "cursed"    // makes the handler panic
	cancelled kind = "cancelled" // is to have no effect
	garbled   kind = "garbled"   // its bytes are cut in half

	overloaded kind = "overloaded" // the payment service answers 503 with Retry-After, once
	limited    kind = "limited"    // the payment service answers 429 with Retry-After, once
	lost       kind = "lost"       // is charged, and the answer is lost
	slow       kind = "slow"       // is charged, and the answer comes too late
	unpaid     kind = "unpaid"     // the account has no funds: 402
)

// mix is how many of 1,000 orders are of a kind; the rest is sound.
var mix = []struct {
	kind kind
	of   int
}{
	{flaky, 10},
	{stubborn, 2},
	{refused, 2},
	{cursed, 1},
	{cancelled, 5},
	{garbled, 2},
	{overloaded, 2},
	{limited, 1},
	{lost, 5},
	{slow, 1},
	{unpaid, 3},
}

// kindOf is what goes wrong with an order: the same in every process and every run of a seed.
func kindOf(seed uint64, order string) kind {
	h := fnv.New64a()
	_, _ = h.Write([]byte(order)) // a hash takes everything
	return pick(rand.New(rand.NewPCG(seed, h.Sum64())).IntN(1000))
}

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

// fateOf is the fate of the first record with its identity. No outage of anything is in it.
func fateOf(k kind) fate {
	switch k {
	case sound, flaky, overloaded, limited, lost, slow:
		return fate{outcome: record.Effected}
	case cancelled:
		return fate{outcome: record.Skipped}
	case stubborn:
		return fate{record.Dead, dlq.Exhausted}
	case refused, unpaid:
		return fate{record.Dead, dlq.Permanent}
	case cursed:
		return fate{record.Dead, dlq.Panic}
	case garbled:
		return fate{record.Dead, dlq.Undecodable}
	}
	return fate{}
}

// chargedInVain says that an order of the kind is charged before its posting fails. Its replay posts it with that charge.
func chargedInVain(k kind) bool { return k == stubborn || k == refused || k == cursed }

// paymentFault is what the payment service does with orders of the kind.
func paymentFault(k kind) payments.Fault {
	switch k {
	case overloaded:
		return payments.Overloaded
	case limited:
		return payments.Limited
	case lost:
		return payments.Lost
	case slow:
		return payments.Slow
	case unpaid:
		return payments.Unpaid
	case sound, flaky, stubborn, refused, cursed, cancelled, garbled:
	}
	return payments.None
}
