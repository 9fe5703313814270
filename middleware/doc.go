// Package middleware is the stack between Watermill's Router and a handler: each layer an ordinary
// message.HandlerMiddleware, in a file of its own.
//
//	guard ► observe ► retry ► decode ► call ► inbox { your middlewares ► handler, each record for itself, in a transaction }
//
// # In a Router that you have
//
//	rt := &middleware.Route{Name: "post-to-ledger", Group: "billing", Inbox: inbox, Graves: inbox, DeadLetters: letters}
//	layers, err := middleware.Stack(rt)
//	…
//	h := router.AddConsumerHandler("ledger", "orders", source.Subscriber(kafka.Subscription{Gates: []kafka.Gate{rt.Gates}}), handle)
//	h.AddMiddleware(layers...)      // these first
//	h.AddMiddleware(yours)          // then yours: inside of the inbox, on a message of one
//
// The handler is any Watermill handler; what it writes through dedup.Tx(msg.Context()) is committed with the inbox's row.
// docs/router.md of this repository is a whole program, with the second subscription that replays need.
//
// # What each layer is for
//
//   - [Guard]: whatever comes out, a panic too, the records without an outcome are given back.
//   - [Observe]: a span a record, a child span an attempt, Hooks.OnSettle.
//   - [Retry]: owns each record that did not succeed. [Policy.Decide] says what happens to it.
//   - [Decode]: identity and event, once a delivery.
//   - [CallOut]: the call of a route that calls out, outside of any transaction and before it.
//   - [Inbox]: the handler, in a transaction that many records share.
//
// The order is not a matter of taste: in any other one something is lost. Recover outside of retry loses the reason
// "panic"; decode outside of it turns one bad record into a stuck partition; a poison queue outside of a breaker takes
// in a thousand healthy records in an outage. [Stack] gives the order, [Verify] checks one put together by hand, and a
// layer that is in the wrong place gives back what comes to it.
//
// # Records, not messages
//
// A message carries one record or many (see package record). Each settles by itself: those that succeed at COMMIT, by
// the inbox; a failed one goes on as a chain, with the records of its key behind it, and nobody else waits for it or
// spends an attempt. The error that a layer returns is a summary: the verdict stands on the record.
//
// # Whose fault it is
//
// A dependency that is down is not a record's fault. Its records are held at a gate, without a charge and for as long
// as it takes; one at a time probes; the scheduler begins nothing of the route; heartbeats go on. A dead letter topic that
// is away holds what is dead, and nobody else. A failure of a call is charged only if its dependency has answered somebody
// since that call began, or since the record's call before it if nobody else began to fail: long before a breaker has seen
// enough, that is what tells a record from an outage. [FloodGuard] is the same thought about ourselves: if nearly
// everything fails, the deploy is bad and not the data.
package middleware
