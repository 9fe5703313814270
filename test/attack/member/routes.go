package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/outbox"
	park "github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/load"
)

// Topics are those of a run: each with its partitions.
func Topics(prefix string) map[string]int32 {
	return map[string]int32{prefix + "orders": 6, prefix + "offsets": 4, prefix + "source": 4, prefix + "events": 4, Fragile(prefix): 2, Deployed(prefix): 2}
}

// Fragile is the topic that faults delete, cut off and write to.
func Fragile(prefix string) string { return prefix + "fragile" }

// Loaded are those that producers write to.
func Loaded(prefix string) []string {
	return []string{prefix + "orders", prefix + "offsets", prefix + "source"}
}

// Audited are the routes as the auditor knows them.
func Audited(prefix string) []audit.Route {
	return []audit.Route{
		{Name: "apply", Topic: prefix + "orders"},
		{Name: "queue", Topic: prefix + "orders"},
		{Name: "batch", Topic: prefix + "orders"},
		{Name: "offset-apply", Topic: prefix + "offsets", ByOffset: true},
		{Name: "offset-batch", Topic: prefix + "offsets", ByOffset: true},
		{Name: "park", Topic: prefix + "source"},
		{Name: "publish", Topic: prefix + "source", Publishes: prefix + "events"},
		{Name: "call", Topic: prefix + "source"},
		{Name: "downstream", Topic: prefix + "events"},
		{Name: "fragile", Topic: Fragile(prefix), Fragile: true},
		{Name: "fragile-offset", Topic: Fragile(prefix), Fragile: true, ByOffset: true},
		{Name: "deployed", Topic: Deployed(prefix)},
		{Name: "deployed-offset", Topic: Deployed(prefix), ByOffset: true},
	}
}

func routes(cfg Config) []consumer.AnyRoute {
	prefix := cfg.Prefix
	orders, offsets := prefix+"orders", prefix+"offsets"
	return append(deployed(cfg),
		apply("apply", orders, options(dedup.ByID), nil),
		consumer.QueueRoute[load.Order]{
			Name: "queue", Topic: orders, Options: options(dedup.ByID),
			Queue: func(b *pgx.Batch, e consumer.Event[load.Order]) error { return queue(b, "queue", e) },
		},
		batch("batch", orders, options(dedup.ByID)),
		apply("offset-apply", offsets, options(dedup.ByOffset), nil),
		batch("offset-batch", offsets, options(dedup.ByOffset)),
		apply("fragile", Fragile(prefix), options(dedup.ByID), nil),
		apply("fragile-offset", Fragile(prefix), options(dedup.ByOffset), nil),
		parking(prefix+"source", cfg.InboxRetention),
		apply("publish", prefix+"source", options(dedup.ByID), func(tx pgx.Tx, e consumer.Event[load.Order]) error {
			return publish(tx, prefix+"events", e)
		}),
		consumer.QueueRoute[load.Order]{
			Name: "downstream", Topic: prefix + "events", Options: options(dedup.ByID),
			Queue: func(b *pgx.Batch, e consumer.Event[load.Order]) error { return queue(b, "downstream", e) },
		},
	)
}

func options(store dedup.Store) consumer.Options {
	return consumer.Options{Store: store, AttemptTimeout: 3 * time.Second, BackoffCap: 2 * time.Second}
}

// apply is a route that executes; then, if not nil, is the last that it does.
func apply(name, topic string, o consumer.Options, then func(pgx.Tx, consumer.Event[load.Order]) error) consumer.AnyRoute {
	return consumer.Route[load.Order]{
		Name: name, Topic: topic, Options: o,
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[load.Order]) error {
			if err := execute(ctx, tx, name, e); err != nil || then == nil {
				return err
			}
			return then(tx, e)
		},
	}
}

func batch(name, topic string, o consumer.Options) consumer.AnyRoute {
	return consumer.BatchRoute[load.Order]{
		Name: name, Topic: topic, Options: o,
		Apply: func(ctx context.Context, tx pgx.Tx, es []consumer.Event[load.Order]) error {
			return together(ctx, tx, name, es)
		},
	}
}

// parking is a route whose records may wait in the database, and come back soon: no longer than the inbox remembers, 0 is
// the default.
func parking(topic string, remembers time.Duration) consumer.AnyRoute {
	o := options(dedup.ByID)
	o.Park = &park.Policy{Base: time.Second, Cap: 2 * time.Second, Lease: 5 * time.Second, MaxAge: remembers}
	return apply("park", topic, o, func(_ pgx.Tx, e consumer.Event[load.Order]) error {
		age := time.Since(e.Timestamp) // negative of some, which are of tomorrow
		if e.Data.Do == load.Later && age >= 0 && age < time.Duration(e.Data.N)*time.Millisecond {
			return fault.Park(errors.New("not yet"), time.Second)
		}
		return nil
	})
}

// publish tells of an effect by way of the outbox.
func publish(tx pgx.Tx, topic string, e consumer.Event[load.Order]) error {
	payload := fmt.Appendf(nil, `{"account":%d,"amount":%d,"mark":%q}`, e.Data.Account, e.Data.Amount, load.Secret)
	msg := message.NewMessage(fmt.Sprintf(audit.EventID, e.Partition, e.Offset), payload)
	msg.Metadata.Set(audit.FateHeader, audit.Effect)
	if e.Key != nil {
		kafka.SetKey(msg, e.Key)
	}
	return outbox.Publisher(tx).Publish(topic, msg)
}
