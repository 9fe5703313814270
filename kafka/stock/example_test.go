package stock_test

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

// orders is a broker with a topic of two orders.
func orders() (kafka.ClientConfig, func()) {
	fake := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	client := kafka.ClientConfig{Brokers: fake.ListenAddrs(), Logger: quiet()}
	producer, err := kgo.NewClient(client.Options()...)
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	for _, customer := range []string{"ada", "bob"} {
		r := &kgo.Record{Topic: "orders", Key: []byte(customer), Value: []byte("an order of " + customer)}
		if err := producer.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			panic(err)
		}
	}
	return client, fake.Close
}

// A Router that reads with watermill-kafka keeps all but its Subscriber. With router.AddMiddleware(middleware.Stack(…)...)
// its effects are exactly once.
func ExampleSubscriber() {
	client, end := orders()
	defer end()
	sub, err := stock.NewSubscriber(stock.Config{Source: kafka.SourceConfig{Client: client, Group: "billing"}})
	if err != nil {
		panic(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		panic(err)
	}
	handled := make(chan struct{}, 2)
	router.AddConsumerHandler("bill", "orders", sub, func(msg *message.Message) error {
		rs, err := record.Records(msg)
		if err != nil {
			return err
		}
		fmt.Println(string(msg.Payload), "with key", string(rs[0].Key))
		handled <- struct{}{}
		return nil
	})
	go func() { _ = router.Run(context.Background()) }()
	<-handled
	<-handled
	_ = sub.Close() // first: what runs finishes and is committed
	_ = router.Close()
	// Output:
	// an order of ada with key ada
	// an order of bob with key bob
}

// consumer.Config.Transport takes what Transport gives. Sarama is told here what ClientConfig cannot tell it.
func ExampleTransport() {
	transport := stock.Transport(func(c *sarama.Config) {
		c.ChannelBufferSize = 64
	})
	made, err := transport(kafka.SourceConfig{Client: kafka.ClientConfig{Brokers: []string{"localhost:9092"}}, Group: "billing"})
	if err != nil {
		panic(err)
	}
	fmt.Println(made.Ready())
	_ = made.Stop(context.Background())
	// Output: kafka stock: not in its consumer group yet
}

// A handler that produces with Sarama or watermill-kafka gives the rule to its route.
func ExampleRule() {
	classifier := fault.Classifier{Rules: []fault.Rule{stock.Rule}}
	for _, err := range []error{sarama.ErrOutOfBrokers, sarama.ErrNotLeaderForPartition, sarama.ErrRequestTimedOut, sarama.ErrMessageSizeTooLarge} {
		fmt.Println(classifier.ClassifyCall(context.Background(), fmt.Errorf("publish: %w", err)).Class)
	}
	// Output:
	// unavailable
	// transient
	// ambiguous
	// permanent
}
