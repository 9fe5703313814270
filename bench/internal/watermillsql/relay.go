// Package watermillsql is Watermill's own outbox: watermill-sql's queue table, whose rows are deleted when they are acked,
// and Watermill's forwarder. It is here, and not in the library's tests, so that nobody who uses the library depends on it.
package watermillsql

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// table is the topic that stands for the outbox.
const table = "outbox"

// Publisher publishes in tx.
func Publisher(tx pgx.Tx) (message.Publisher, error) {
	pub, err := sql.NewPublisher(sql.TxFromPgx(tx), sql.PublisherConfig{SchemaAdapter: sql.PostgreSQLQueueSchema{}}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: table}), nil
}

// Relay forwards the table.
type Relay struct {
	sub *sql.Subscriber
	fwd *forwarder.Forwarder
}

// Config are the settings that the failures need; the zero value is watermill-sql's.
type Config struct {
	AckDeadline, ResendInterval, PollInterval, CloseTimeout time.Duration
}

// NewRelay creates the table if need be.
func NewRelay(pool *pgxpool.Pool, out message.Publisher, cfg Config) (*Relay, error) {
	sc := sql.SubscriberConfig{
		SchemaAdapter:  sql.PostgreSQLQueueSchema{},
		OffsetsAdapter: sql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true},
		PollInterval:   cfg.PollInterval, ResendInterval: cfg.ResendInterval, InitializeSchema: true,
	}
	if cfg.AckDeadline > 0 {
		sc.AckDeadline = &cfg.AckDeadline
	}
	sub, err := sql.NewSubscriber(sql.BeginnerFromPgx(pool), sc, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if err := sub.SubscribeInitialize(table); err != nil {
		return nil, err
	}
	fwd, err := forwarder.NewForwarder(sub, out, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: table, CloseTimeout: cfg.CloseTimeout})
	return &Relay{sub, fwd}, err
}

// Run forwards until Close.
func (r *Relay) Run(ctx context.Context) error { return r.fwd.Run(ctx) }

// Close ends Run, the Subscriber first.
func (r *Relay) Close() error { return errors.Join(r.sub.Close(), r.fwd.Close()) }

// Waiting is how many rows are in the table.
func Waiting(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, "select count(*) from watermill_"+table).Scan(&n)
	return n, err
}
