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

// exampleCluster is a broker with two dead letters of "orders", and the replay topic of "billing".
func exampleCluster() (client kafka.ClientConfig, stop func()) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders.dlq", "orders.billing.replay"))
	must(err)
	client = kafka.ClientConfig{Brokers: broker.ListenAddrs(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	w, err := dlq.NewWriter(dlq.WriterConfig{Client: client, Group: "billing"})
	must(err)
	for offset, l := range []dlq.Letter{
		{Reason: dlq.Undecodable, Err: errors.New("unexpected end of JSON input"), Route: "post-order-to-ledger"},
		{Reason: dlq.Exhausted, Err: errors.New("no such account"), Route: "post-order-to-ledger"},
	} {
		l.Record = &record.Record{Topic: "orders", Offset: int64(offset), Value: []byte("{\"amount\": \x1b[2J")}
		must(w.Write(context.Background(), l))
	}
	must(w.Close())
	return client, broker.Close
}

// Whatever a letter holds is escaped before it is shown.
func ExampleRead() {
	client, stop := exampleCluster()
	defer stop()
	snapshot, err := dlq.Read(context.Background(), dlq.ReadConfig{Client: client, Topic: "orders.dlq"}, func(e *dlq.Entry) error {
		fmt.Println(e.Place(), e.Envelope.Origin, e.Envelope.Reason, e.Envelope.Message)
		fmt.Println(" ", dlq.Preview(e.Value, 12))
		return nil
	})
	must(err)
	fmt.Println(snapshot.Matched, "of", snapshot.Records)
	// Output:
	// orders.dlq/0/0 orders/0/0 undecodable unexpected end of JSON input
	//   {"amount": \x1b… (3 more bytes)
	// orders.dlq/0/1 orders/0/1 exhausted no such account
	//   {"amount": \x1b… (3 more bytes)
	// 2 of 2
}

// A dry run tells what a replay would send, and to where.
func ExampleReplay() {
	client, stop := exampleCluster()
	defer stop()
	cfg := dlq.ReplayConfig{
		Read: dlq.ReadConfig{
			Client: client,
			Topic:  "orders.dlq",
			Filter: dlq.Filter{Reasons: []dlq.Reason{dlq.Exhausted}},
		},
		Each: func(e *dlq.Entry, r dlq.Result) { fmt.Println(e.Envelope.Origin, "->", r.Topic, r.Sent, r.Err) },
	}
	for _, cfg.DryRun = range []bool{true, false} {
		summary, err := dlq.Replay(context.Background(), cfg)
		must(err)
		fmt.Println("dry run:", cfg.DryRun, "sent:", summary.Sent, "failed:", summary.Failed)
	}
	// Output:
	// orders/0/1 -> orders.billing.replay true <nil>
	// dry run: true sent: 1 failed: 0
	// orders/0/1 -> orders.billing.replay true <nil>
	// dry run: false sent: 1 failed: 0
}

// Letters of other systems are read by their header conventions.
func ExampleNewEntry() {
	e := dlq.NewEntry(&record.Record{
		Topic: "orders.dead", Offset: 3, Value: []byte("{"),
		Headers: []record.Header{
			{Key: "trace-id", Value: []byte("4bf9")},
			{Key: "__connect.errors.topic", Value: []byte("orders")},
			{Key: "__connect.errors.partition", Value: []byte("3")},
			{Key: "__connect.errors.offset", Value: []byte("4711")},
			{Key: "__connect.errors.exception.message", Value: []byte("cannot convert")},
		},
	})
	fmt.Println(e.Format, e.Envelope.Origin, e.Envelope.Message, len(e.Headers))
	// Output: connect orders/3/4711 cannot convert 1
}

func ExampleFilter() {
	f := dlq.Filter{Reasons: []dlq.Reason{"oops"}}
	fmt.Println(f.Validate())
	f = dlq.Filter{Groups: []string{"billing"}, Keys: []string{"account-7"}}
	fmt.Println(f.Match(&dlq.Entry{Key: []byte("account-7"), Envelope: dlq.Envelope{Group: "billing"}}))
	// Output:
	// unknown reason "oops": it is one of permanent, exhausted, unknown_outcome, undecodable, panic, id_conflict, crash_loop, manual
	// true
}

func ExampleEscape() {
	fmt.Println(dlq.Escape([]byte("paid\x1b[2K\u202e\n\xff, and more"), 13))
	fmt.Println(dlq.HeaderValue(record.Header{Key: "Authorization", Value: []byte("Basic aGk6aG8=")}, 80))
	// Output:
	// paid\x1b[2K\u202e\n\xff… (10 more bytes)
	// [redacted]
}
