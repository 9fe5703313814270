package kafka_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// A Publisher is what any Watermill code publishes to. What Watermill's messages cannot say, records can.
func ExamplePublisher() {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	must(err)
	defer broker.Close()

	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Client: kafka.ClientConfig{Brokers: broker.ListenAddrs()}})
	must(err)
	defer func() { _ = pub.Close() }()

	// A message with a key: records of one key keep their order.
	msg := message.NewMessage("order-1-placed", []byte(`{"amount": 7}`))
	msg.Metadata.Set("traceparent", "00-4bf9-01")
	kafka.SetKey(msg, []byte("order-1"))
	must(pub.Publish("orders", msg))

	// A tombstone whose headers repeat a name, one of them without a value.
	err = pub.PublishRecords(context.Background(), kafka.ProducerRecord{
		Topic: "orders",
		Key:   []byte("order-1"),
		Headers: []record.Header{
			{Key: "via", Value: []byte("import")},
			{Key: "via", Value: nil},
		},
	})
	must(err)

	for _, r := range readAll(broker.ListenAddrs(), "orders", 2) {
		fmt.Printf("%s: value %q, nil: %t\n", r.Key, r.Value, r.Value == nil)
		for _, h := range r.Headers {
			fmt.Printf("  %s: %q, nil: %t\n", h.Key, h.Value, h.Value == nil)
		}
	}
	// Output:
	// order-1: value "{\"amount\": 7}", nil: false
	//   _watermill_message_uuid: "order-1-placed", nil: false
	//   traceparent: "00-4bf9-01", nil: false
	// order-1: value "", nil: true
	//   via: "import", nil: false
	//   via: "", nil: true
}

// An Admin tells what the cluster knows.
func ExampleAdmin() {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	must(err)
	defer broker.Close()
	admin, err := kafka.NewAdmin(kafka.ClientConfig{Brokers: broker.ListenAddrs()})
	must(err)
	defer admin.Close()

	ctx := context.Background()
	_, err = admin.Topic(ctx, "orders")
	fmt.Println(err)
	must(admin.CreateTopic(ctx, kafka.TopicSpec{Name: "orders", Partitions: 6, Retention: kafka.Forever}))
	topic, err := admin.Topic(ctx, "orders")
	must(err)
	fmt.Println(topic.Partitions, "partitions, kept forever:", topic.Retention == kafka.Forever)
	// Output:
	// unknown topic "orders"
	// 6 partitions, kept forever: true
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func readAll(brokers []string, topic string, n int) []*kgo.Record {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err)
	defer cl.Close()
	var got []*kgo.Record
	for len(got) < n {
		fetches := cl.PollFetches(context.Background())
		must(fetches.Err())
		got = append(got, fetches.Records()...)
	}
	return got
}
