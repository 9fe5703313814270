// Package payments is the payment service that the orders of the demo and of make outage are charged by: real HTTP, a book of its own in
// Postgres, and the faults that such services have.
//
//	POST /charges {"order": "…", "account": 7, "amount": 995}   with an Idempotency-Key
//	GET  /charges                                               everything ever charged
//
// Package idempotency has it charge each Idempotency-Key once and give a repeated request the first one's answer. Its
// book is keyed by nothing: a key that was charged twice, or an order that came with two keys, has two lines.
//
// What goes wrong with an order's charge is given by a function of the order alone, so that it is the same in every run.
// A [Service] may also be sent [Service.Away] altogether, or the bank of some accounts [Service.BankAway], and [Service.Mend] ends all faults.
package payments
