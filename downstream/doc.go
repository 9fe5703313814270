// Package downstream is for calls out: to a payment service, a mail relay, another team's API. They cannot join a
// Postgres transaction, so a call may have been executed although nobody heard of it; and what is called may be down
// while every record is healthy.
//
// # A dependency
//
// Make one [Dependency] for each thing that is called, and share it between all routes and clients of the process:
//
//	payments, err := downstream.New(downstream.Config{Name: "payments"})
//
// Around its calls it has
//
//   - a circuit breaker: when half of at least 20 calls in a minute failed by the dependency's fault, nothing is let
//     through for 30s, and then one call at a time, the probe, until one succeeds. Answers (most of 4xx), cancellations
//     and our own refusals are no failures; a call that does not end is one.
//   - a bulkhead: 64 calls at once in this process.
//   - a [Gate], where the records of routes wait while the breaker is open.
//
// # In a route
//
// The layer that calls for a record (consumer.CallRoute, middleware.Call) takes the gate's pass, a place and the
// breaker's leave, and puts a [Permit] into the context. A [Dependency.Do] or [Dependency.Transport] of that dependency
// under it makes one try and counts nothing again; the route retries, holds or gives up.
//
//	client := &http.Client{Transport: payments.Transport(nil)}
//	…
//	resp, err := client.Do(req)
//	if err != nil {
//		return Receipt{}, err
//	}
//	defer resp.Body.Close()
//	return downstream.DecodeJSON[Receipt](resp) // or Check, and any format
//
// What such an error means for the record is said by the error: surely not executed, unknown, in progress, our
// credentials. [Call.End] says who is charged for it:
//
//	it was a probe, or the breaker has opened since it began      Outage   hold, at no charge
//	the dependency has answered somebody since it began           Charged  it is alive, and fails this record: an attempt
//	it has since the record's call before, and no other began     Charged  the same, of a record whose calls fail fast
//	to fail
//	else                                                          Free     again after a back-off, at no charge
//	an answer, a bug, a refusal                                   Charged  the record's own business
//
// So an outage kills no record, at whatever concurrency: one partition's record fails three times in a row long before
// a breaker has seen twenty calls. Nor do a few bad records stop a route: while others are answered their repeats say
// nothing to the breaker, and at the gate they wait behind those that have not failed. The price is that a record which
// always fails, alone on its dependency, is tried for ever: the report not_corroborated tells of it, and 'headrace bury' ends
// it.
//
// A status that has no meaning (600, 999) is an answer like most of 4xx: it is Permanent, and the dependency works.
// Give the route's and the dependency's Classifier a rule for one that means something else there.
//
// A success that is none, a proxy's page to log in with, is an error of [DecodeJSON] that means what a lost answer does, and
// a failure of the dependency to the breaker. Who decodes by himself says fault.Transient or fault.Ambiguous: the error of a
// decoder is unknown to the classifier, and so Permanent.
//
// # A call within a call
//
// A handler may call another dependency in its call. What fails there, by that one's Do, Transport or [Check], is a
// [ForeignError]: it says nothing of the route's dependency, whose breaker does not count it, and the record is charged
// if the one that failed has answered somebody since. Its own refusals hold the record. An error that is made by hand
// of another dependency's answer is taken for the route's own.
//
// Pass the call's context on. What is sent without it is a call of its own: it carries no key, takes a second place, and
// is refused while the call around it is the probe, which has failed by that; a report says so.
//
// # The breaker and its gate
//
//	          enough failed                     OpenFor is over
//	closed ───────────────────► open ────────────────────────────► half open ◄─┐
//	  ▲                          ▲  the gate is shut                  │ one probe │ it says nothing
//	  │                          └────────────────────────────────────┤ (cancelled, panicked)
//	  │ the gate lets 1, 2, 4, …                it failed, or hung    ├───────────┘
//	  └───────────────────────────────────────────────────────────────┘
//	                             it was answered
//
// Exactly one probe is out in a process, whether a record's or a plain client's, and each is over at its limit.
//
// # Outside of a route
//
// [Dependency.Do], [Run] and Transport pass the breaker and take a place, and are refused at once, with a
// fault.RefusedError, if there is none. Run and Transport try again, three times in all, what may be tried again: it was
// surely not executed, or its method is safe or idempotent, or it carries an idempotency key, or, with Run, the dependency
// says when asked that it was not carried out ([Operation].Reconcile). All tries together are one call to the breaker.
// Retries cost tokens, so that they add a tenth at most to the load of a dependency that fails.
//
// [Plan] decides, for a route's records too: a pure function, with a reason for every no. Package grpccall, a module of
// its own, does the same for gRPC.
//
// # Reads that may be old
//
// A [Fallback] gives a read its last known value, a part or a default while the dependency fails, and says so: in the
// result, in a metric and in a report. The breaker hears of the failure all the same. Where money is decided by what is
// read, the route forbids it.
//
// # Never in a transaction
//
// A call under the context of the inbox's transaction is counted and reported, and an error with
// Config.RefuseInTransaction: the transaction would hold its locks and its connection for as long as the dependency takes.
//
// # Time
//
// [Budget] gives a call its part of the time that is left, and refuses one that could only be cut short. Config.NormalTime
// refuses a call that has less time than such calls take, Config.DeadlineHeader tells the dependency how much it has.
//
// # Idempotency keys
//
// [IdempotencyKey] is the same on every attempt, redelivery and replay of a record. Transport sends it by itself with
// each request that is not safe. Two requests of one record with the same method and path need names: [WithOperation].
// Keys only help if the dependency remembers them for longer than a dead letter may be replayed.
package downstream
