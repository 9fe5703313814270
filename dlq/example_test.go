package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// The envelope is known by its position, so what a producer wrote under one of our names comes back as it was.
func ExampleDecode() {
	original := []record.Header{{Key: "headrace-route", Value: []byte("the producer's own")}}
	env := dlq.Envelope{
		Origin: dlq.Coordinates{Topic: "orders", Partition: 3, Offset: 4711},
		Route:  "post-order-to-ledger",
		Reason: dlq.Exhausted,
	}

	letter := env.Append(original)
	last := letter[len(letter)-1]
	fmt.Printf("%s: %s\n", last.Key, last.Value)

	got, headers, ok := dlq.Decode(letter)
	fmt.Println(ok, got.Origin, got.Route, got.Reason)
	fmt.Printf("%s: %s\n", headers[0].Key, headers[0].Value)
	// Output:
	// headrace-dlq: 18
	// true orders/3/4711 post-order-to-ledger exhausted
	// headrace-route: the producer's own
}

// A Writer returns when all in-sync replicas have the letter: only then may the record be settled.
func ExampleWriter() {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "orders"))
	must(err)
	defer broker.Close()
	w, err := dlq.NewWriter(dlq.WriterConfig{
		Client: kafka.ClientConfig{Brokers: broker.ListenAddrs(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))},
		Group:  "billing",
		Hooks: &record.Hooks{OnDeadLetter: func(i record.DeadLetterInfo) {
			fmt.Println("a dead letter of", i.Topic, "because it is", i.Reason)
		}},
	})
	must(err)
	defer func() { _ = w.Close() }()

	ctx := context.Background()
	fmt.Println(w.Check(ctx, "orders", false))
	must(w.Check(ctx, "orders", true)) // creates it

	must(w.Write(ctx, dlq.Letter{
		Record: &record.Record{Topic: "orders", Partition: 3, Offset: 4711, Value: []byte(`{"amount": 7}`)},
		Reason: dlq.Permanent,
		Err:    errors.New("no such account"),
		Route:  "post-order-to-ledger",
	}))
	// Output:
	// dead letter topic: orders -> orders.dlq: the dead letter topic does not exist; create it, or let it be created
	// a dead letter of orders because it is permanent
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
