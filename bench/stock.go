package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var errPoison = errors.New("this posting can never succeed")

// stockStack is today's stack as a careful team glues it: watermill-kafka's Subscriber, PoisonQueue outside Retry outside
// Recoverer, and an inbox row in the handler's transaction.
type stockStack struct{}

func (stockStack) name() string { return "stock Watermill" }

func (stockStack) inboxRows() string { return `select count(*) from stock_inbox` }

func (stockStack) start(e env, w workload, group string, seen *clock) (func(), error) {
	router, err := stockRouter(e, w, group, stockHandler(e.db, seen))
	if err != nil {
		return nil, err
	}
	return runStock(router, seen), nil
}

func runStock(router *message.Router, seen *clock) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := router.Run(context.Background()); err != nil {
			seen.fail(err)
		}
	}()
	return func() { _ = router.Close(); <-done }
}

// stockRouter puts inner between Retry and Recoverer.
func stockRouter(
	e env, w workload, group string, handler message.NoPublishHandlerFunc, inner ...message.HandlerMiddleware,
) (*message.Router, error) {
	cfg := wmkafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest // its default, newest, would skip the topic
	sub, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: e.brokers, ConsumerGroup: group, OverwriteSaramaConfig: cfg,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	pub, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: e.brokers, Marshaler: wmkafka.DefaultMarshaler{}}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	poison, err := middleware.PoisonQueue(pub, w.topic+".dlq")
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	retry := middleware.Retry{
		MaxRetries: 2, InitialInterval: 200 * time.Millisecond, Multiplier: 2, RandomizationFactor: 0.5,
		ShouldRetry: func(p middleware.RetryParams) bool { return !errors.Is(p.Err, errPoison) },
	}
	router.AddMiddleware(poison, retry.Middleware)
	router.AddMiddleware(inner...)
	router.AddMiddleware(middleware.Recoverer)
	router.AddConsumerHandler("post", w.topic, sub, handler)
	return router, nil
}

func stockHandler(db *pgxpool.Pool, seen *clock) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		seen.first()
		var p posting
		if err := json.Unmarshal(msg.Payload, &p); err != nil {
			return err
		}
		if p.Poison {
			seen.done()
			return errPoison
		}
		return stockPost(msg, db, p, seen)
	}
}

// stockPost is the inbox row and the work of a record in one transaction.
func stockPost(msg *message.Message, db *pgxpool.Pool, p posting, seen *clock) error {
	err := pgx.BeginFunc(msg.Context(), db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(msg.Context(), `insert into stock_inbox values ('post', $1) on conflict do nothing`, msg.UUID)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return post(msg.Context(), tx, p)
	})
	if err == nil {
		seen.done()
	}
	return err
}
