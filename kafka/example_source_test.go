package kafka_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// orders is a broker with a topic of three orders.
func orders() (kafka.ClientConfig, func()) {
	fake := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	client := kafka.ClientConfig{Brokers: fake.ListenAddrs(), Logger: quiet()}
	producer, err := kgo.NewClient(client.Options()...)
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	for _, customer := range []string{"ada", "bob", "ada"} {
		r := &kgo.Record{Topic: "orders", Key: []byte(customer), Value: []byte("an order of " + customer)}
		if err := producer.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			panic(err)
		}
	}
	return client, fake.Close
}

// Any Watermill handler reads messages of one.
func ExampleSource() {
	client, end := orders()
	defer end()
	source, err := kafka.NewSource(kafka.SourceConfig{Client: client, Group: "billing"})
	if err != nil {
		panic(err)
	}
	messages, err := source.Subscribe(context.Background(), "orders")
	if err != nil {
		panic(err)
	}
	for range 2 {
		msg := <-messages
		fmt.Println(string(msg.Payload))
		msg.Ack() // settles the record
	}
	if err := source.Close(); err != nil { // commits what is settled and leaves the group
		panic(err)
	}
	// Output:
	// an order of ada
	// an order of bob
}

// A route that knows of records takes all that are waiting in one message, and settles each by itself.
func ExampleSource_Subscriber() {
	client, end := orders()
	defer end()
	source, err := kafka.NewSource(kafka.SourceConfig{Client: client, Group: "billing"})
	if err != nil {
		panic(err)
	}
	route := source.Subscriber(kafka.Subscription{Name: "bill", MaxBatch: 500})
	messages, err := route.Subscribe(context.Background(), "orders")
	if err != nil {
		panic(err)
	}
	for seen := 0; seen < 3; {
		msg := <-messages
		rs, err := record.Records(msg)
		if err != nil {
			panic(err)
		}
		for _, r := range rs {
			fmt.Println(r.Offset, string(r.Value))
			r.Settle(record.Effected)
			seen++
		}
		msg.Ack()
	}
	if err := source.Close(); err != nil {
		panic(err)
	}
	// Output:
	// 0 an order of ada
	// 1 an order of bob
	// 2 an order of ada
}
