package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// A route that calls a payment service before it writes, in a Watermill Router that is there already. The service is down
// for its first two requests, which costs the record nothing; and the handler that fails does not have it asked again.
func ExampleCallOut() {
	inbox := newInbox(1, 500) // dedup.Open(…).Route(…) in a program
	defer inbox.close()

	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	requests := 0
	charge := func(ctx context.Context, r *record.Record) (any, error) { // with an http.Client on downstream.Transport
		if requests++; requests <= 2 {
			fmt.Println("request", requests, "refused")
			return nil, fault.Transient(errors.New("connection refused"))
		}
		fmt.Println("request", requests, "charged", string(r.Value))
		return "receipt 4711", nil
	}

	var settled sync.WaitGroup
	route := &middleware.Route{
		Name: "charge-order", Group: "billing", Inbox: inbox, Graves: inbox, DeadLetters: newTopic(),
		Retry:      middleware.Policy{Base: time.Millisecond},
		Call:       &middleware.Call{Dependency: payments, Do: charge, Inbox: inbox},
		Repeatable: true, // payments executes each idempotency key once
		Hooks:      &record.Hooks{OnSettle: func(record.SettleInfo) { settled.Done() }},
	}
	layers, err := middleware.Stack(route)
	if err != nil {
		fmt.Println(err)
		return
	}
	failed := false
	handle := func(msg *message.Message) error { // in the inbox's transaction: dedup.Tx(msg.Context())
		r := record.Of(msg.Context())
		if !failed {
			failed = true
			fmt.Println("not written:", r.Reply)
			return fault.Transient(errors.New("deadlock"))
		}
		fmt.Println("written:", r.Reply, "at attempt", r.Attempt())
		return nil
	}

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	source := newSource(route.Gates) // the route's gates have the dependency's: while it is down nothing begins
	router.AddConsumerHandler("charge", "orders", source, handle).AddMiddleware(layers...)
	settled.Add(1)
	source.deliver("order 1")
	go func() { _ = router.Run(context.Background()) }()
	settled.Wait()
	_ = router.Close()
	// Output:
	// request 1 refused
	// request 2 refused
	// request 3 charged order 1
	// not written: receipt 4711
	// written: receipt 4711 at attempt 2
}
