package peer

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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
)

// stockApply is today's stack as a careful team glues it: watermill-kafka's Subscriber, PoisonQueue outside Retry outside
// Recoverer, and an inbox row in the handler's transaction.
func stockApply(ctx context.Context, s *child.Session) error {
	db, err := connect(ctx, s)
	if err != nil {
		return err
	}
	defer db.Close()
	return runStock(ctx, s, stockHandler(s, db))
}

func stockHandler(s *child.Session, db *pgxpool.Pool) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		s.First()
		defer s.Done(1)
		var p load.Posting
		if err := json.Unmarshal(msg.Payload, &p); err != nil {
			return err
		}
		if p.Poison {
			return errPoison
		}
		if err := pause(msg.Context(), s); err != nil {
			return err
		}
		if err := postOnce(msg.Context(), db, msg.UUID, p); err != nil {
			return err
		}
		took(s, p)
		return nil
	}
}

// runStock runs a handler with inner between Retry and Recoverer.
func runStock(ctx context.Context, s *child.Session, handler message.NoPublishHandlerFunc, inner ...message.HandlerMiddleware) error {
	cfg := wmkafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest // its default, newest, would skip the topic
	sub, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: brokers(s), ConsumerGroup: s.Group, OverwriteSaramaConfig: cfg,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	pub, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: brokers(s), Marshaler: wmkafka.DefaultMarshaler{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	poison, err := middleware.PoisonQueue(pub, s.Topic+".dlq")
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	retry := middleware.Retry{
		MaxRetries: 2, InitialInterval: 200 * time.Millisecond, Multiplier: 2, RandomizationFactor: 0.5,
		ShouldRetry: func(p middleware.RetryParams) bool { return !errors.Is(p.Err, errPoison) },
	}
	router.AddMiddleware(poison, retry.Middleware)
	router.AddMiddleware(inner...)
	router.AddMiddleware(middleware.Recoverer)
	router.AddConsumerHandler("post", s.Topic, sub, handler)
	s.Ready()
	return errors.Join(router.Run(ctx), pub.Close())
}
