package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// The stack in a Watermill Router that is there already. Three records are delivered in one message: one succeeds, one
// needs a second attempt, one is dead. An ordinary handler sees each as a message of its own.
func ExampleStack() {
	inbox := newInbox(1, 500) // dedup.Open(…).Route(…) in a program
	defer inbox.close()
	letters := newTopic() // dlq.NewWriter(…)

	var settled sync.WaitGroup
	route := &middleware.Route{
		Name: "post-to-ledger", Group: "billing", Inbox: inbox, Graves: inbox, DeadLetters: letters, Batches: true,
		Retry: middleware.Policy{Base: time.Millisecond},
		Hooks: &record.Hooks{OnSettle: func(record.SettleInfo) { settled.Done() }},
	}
	layers, err := middleware.Stack(route)
	if err != nil {
		fmt.Println(err)
		return
	}

	tries := map[string]int{}
	handle := func(msg *message.Message) error {
		name := string(msg.Payload)
		switch tries[name]++; {
		case name == "flaky" && tries[name] == 1:
			return fault.Transient(errors.New("not yet"))
		case name == "bad":
			return errors.New("no such account")
		}
		fmt.Println("effected", name, "at attempt", tries[name])
		return nil
	}

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		fmt.Println(err)
		return
	}
	source := newSource(route.Gates) // kafka.NewSource(…).Subscriber(kafka.Subscription{Gates: []kafka.Gate{route.Gates}})
	router.AddConsumerHandler("ledger", "orders", source, handle).AddMiddleware(layers...)

	settled.Add(3)
	source.deliver("good", "flaky", "bad")
	go func() { _ = router.Run(context.Background()) }()
	settled.Wait()
	_ = router.Close()

	for _, l := range letters.of(2) {
		fmt.Println("dead:", string(l.Record.Value), l.Reason, l.Err)
	}
	// Output:
	// effected good at attempt 1
	// effected flaky at attempt 2
	// dead: bad permanent no such account
}

// A decision depends on nothing but its State: every row of the table can be tried.
func ExamplePolicy_Decide() {
	policy := middleware.Policy{}.WithDefaults()
	for _, class := range []fault.Class{fault.ClassTransient, fault.ClassUnavailable, fault.ClassPermanent, fault.ClassCancelled} {
		first := policy.Decide(middleware.State{Fault: fault.Fault{Class: class}})
		third := policy.Decide(middleware.State{Fault: fault.Fault{Class: class}, Attempts: 2})
		fmt.Printf("%-12s %s, then %s %q\n", class, first.Action, third.Action, third.Reason)
	}
	// Output:
	// transient    again, then dead "exhausted"
	// unavailable  hold, then hold ""
	// permanent    dead, then dead "permanent"
	// cancelled    give back, then give back ""
}

// A dependency that is down lets one through at a time, until somebody has an answer.
func ExampleGate() {
	gate := downstream.NewGate(downstream.GateConfig{Name: "payments", Base: 100 * time.Millisecond})
	pass, _ := gate.TryEnter()
	pass.Failed()
	fmt.Println("shut:", gate.Shut())

	probe, _ := gate.Enter(context.Background(), nil) // waits for the back-off
	_, second := gate.TryEnter()
	fmt.Println("a second probe:", second)
	probe.OK()
	fmt.Println("shut:", gate.Shut())
	// Output:
	// shut: true
	// a second probe: false
	// shut: false
}

// Past its limit the guard refuses: the record keeps no verdict, and its partition waits.
func ExampleFloodGuard() {
	guard := middleware.NewFloodGuard(middleware.FloodConfig{Run: 2})
	orders := middleware.Partition{Topic: "orders", Partition: 7}
	for n := 1; n <= 3; n++ {
		permit, ok := guard.Admit(orders)
		fmt.Println("dead letter", n, ok)
		if ok {
			permit.Used()
		}
	}
	guard.Settled(orders, 1) // something that is not dead
	_, ok := guard.Admit(orders)
	fmt.Println("after a success", ok)
	// Output:
	// dead letter 1 true
	// dead letter 2 true
	// dead letter 3 false
	// after a success true
}

var _ middleware.DeadLetters = (*dlq.Writer)(nil)

// exampleSource is a message.Subscriber with one claim.
type exampleSource struct {
	claim *claim
	out   chan *message.Message
	ended sync.Once
}

func newSource(gates *middleware.Gates) *exampleSource {
	return &exampleSource{claim: newClaim(1, 500, gates), out: make(chan *message.Message)}
}

func (s *exampleSource) deliver(values ...string) {
	for i, v := range values {
		r := rec(int64(i), "")
		r.Value = []byte(v)
		s.claim.add(r)
	}
}

func (s *exampleSource) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	go func() {
		defer close(s.out)
		s.claim.serve(func(msg *message.Message) ([]*message.Message, error) {
			s.out <- msg
			select {
			case <-msg.Acked():
				return nil, nil
			case <-msg.Nacked():
				return nil, context.Canceled
			}
		})
	}()
	return s.out, nil
}

func (s *exampleSource) Close() error {
	s.ended.Do(func() { s.claim.end(time.Second) })
	return nil
}
