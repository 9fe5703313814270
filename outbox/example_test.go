package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/outbox"
)

// What is published in a transaction that is rolled back is never sent.
func ExamplePublisher() {
	ctx := context.Background()
	pool, stop := database(ctx)
	defer stop()

	place := func(order string, fails error) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		msg := message.NewMessage(order+"-placed", []byte(`{"order": "`+order+`"}`))
		kafka.SetKey(msg, []byte(order))
		if err := outbox.Publisher(tx).Publish("orders-placed", msg); err != nil {
			return err
		}
		if fails != nil {
			return fails
		}
		return tx.Commit(ctx)
	}
	fmt.Println(place("order-1", nil))
	fmt.Println(place("order-2", errors.New("out of stock")))

	size, err := outbox.Size(ctx, pool)
	must(err)
	fmt.Println("waiting:", size.Rows)
	// Output:
	// <nil>
	// out of stock
	// waiting: 1
}

// A handler that queues its effects queues its events with them.
func ExampleQueue() {
	b := &pgx.Batch{}
	b.Queue("update stock set free = free - 1 where item = $1", "bolt")
	fmt.Println(outbox.Queue(b, "stock-changed", message.NewMessage("bolt-7", []byte(`{"item": "bolt"}`))))
	fmt.Println(b.Len(), "statements")

	fmt.Println(outbox.Queue(b, "stock changed", message.NewMessage("bolt-8", nil)))
	// Output:
	// <nil>
	// 2 statements
	// message cannot be an event of the outbox: message "bolt-8": topic "stock changed" has characters other than letters, digits, '.', '_' and '-'
}

// A forwarder sends what was committed, whichever process committed it.
func ExampleForwarder() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, stop := database(ctx)
	defer stop()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders-placed"))
	must(err)
	defer broker.Close()

	tx, err := pool.Begin(ctx)
	must(err)
	must(outbox.Publisher(tx).Publish("orders-placed",
		message.NewMessage("order-1-placed", []byte("1")), message.NewMessage("order-2-placed", []byte("2"))))
	must(tx.Commit(ctx))

	f, err := outbox.NewForwarder(pool, outbox.Config{Client: kafka.ClientConfig{Brokers: broker.ListenAddrs()}})
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()

	cl, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumeTopics("orders-placed"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err)
	defer cl.Close()
	for n := 0; n < 2; {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			fmt.Printf("%s: %s\n", r.Headers[0].Value, r.Value)
			n++
		})
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// order-1-placed: 1
	// order-2-placed: 2
	// <nil>
}

func database(ctx context.Context) (*pgxpool.Pool, func()) {
	server, err := embedded.Postgres(ctx, embedded.Config{})
	must(err)
	pool, err := pgxpool.New(ctx, server.DSN())
	must(err)
	must(migrations.Up(ctx, pool))
	return pool, func() {
		pool.Close()
		_ = server.Close()
	}
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
