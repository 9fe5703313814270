package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/watermillsql"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/outbox"
)

const (
	relayPartitions = 8
	relayWriters    = 4
	// relayGroup is how many events a transaction publishes.
	relayGroup = 100
	// relayAcks is what a produce takes at least, as from a broker that is not on this machine.
	relayAcks = 3 * time.Millisecond
)

// relay is an outbox: how to publish in a transaction, and what forwards until the context ends.
type relay struct {
	publisher func(pgx.Tx) (message.Publisher, error)
	run       func(context.Context) error
}

// buildRelay makes one on a database and a broker.
type buildRelay func(ctx context.Context, db *pgxpool.Pool, brokers []string) (relay, error)

func newHeadraceRelay(ctx context.Context, db *pgxpool.Pool, brokers []string) (relay, error) {
	if err := migrations.Up(ctx, db); err != nil {
		return relay{}, err
	}
	f, err := outbox.NewForwarder(db, outbox.Config{Client: slowly(brokers)})
	return relay{func(tx pgx.Tx) (message.Publisher, error) { return outbox.Publisher(tx), nil }, f.Run}, err
}

func newWatermillRelay(_ context.Context, db *pgxpool.Pool, brokers []string) (relay, error) {
	pub, err := kafka.NewPublisher(kafka.PublisherConfig{Client: slowly(brokers)})
	if err != nil {
		return relay{}, err
	}
	r, err := watermillsql.NewRelay(db, pub, watermillsql.Config{})
	run := func(ctx context.Context) error {
		defer func() { _ = pub.Close() }()
		defer context.AfterFunc(ctx, func() { _ = r.Close() })()
		return r.Run(context.WithoutCancel(ctx))
	}
	return relay{watermillsql.Publisher, run}, err
}

// relayed gives the events a second, from the first transaction to the last event in Kafka. Writers and forwarder are this
// process, side by side.
func (b *bench) relayed(ctx context.Context, events int, build buildRelay) (float64, error) {
	if err := load.Reset(ctx, b.db, 1); err != nil {
		return 0, err
	}
	topic, err := load.Create(ctx, b.brokers, load.Shape{Partitions: relayPartitions})
	if err != nil {
		return 0, err
	}
	db, err := b.relayPool(ctx)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	r, err := build(ctx, db, b.brokers)
	if err != nil {
		return 0, err
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.run(running) }()
	began := time.Now()
	err = errors.Join(b.publishAll(ctx, db, r, topic.Name, events), b.arrived(ctx, topic.Name, events))
	took := time.Since(began)
	end()
	return float64(events) / took.Seconds(), errors.Join(err, <-ended)
}

// relayPool has room for writers and forwarder.
func (b *bench) relayPool(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(b.dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 2 * relayWriters
	return pgxpool.NewWithConfig(ctx, cfg)
}

func (b *bench) publishAll(ctx context.Context, db *pgxpool.Pool, r relay, topic string, events int) error {
	var next atomic.Int64
	var writers sync.WaitGroup
	errs := make([]error, relayWriters)
	for i := range errs {
		writers.Go(func() {
			for errs[i] == nil {
				to := int(next.Add(relayGroup))
				from := to - relayGroup
				if from >= events {
					return
				}
				errs[i] = publish(ctx, db, r, topic, from, min(to, events))
			}
		})
	}
	writers.Wait()
	return errors.Join(errs...)
}

func publish(ctx context.Context, db *pgxpool.Pool, r relay, topic string, from, to int) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	pub, err := r.publisher(tx)
	if err != nil {
		return err
	}
	msgs := make([]*message.Message, 0, to-from)
	for i := from; i < to; i++ {
		msg := message.NewMessage(fmt.Sprintf("%036d", i), []byte(fmt.Sprintf(`{"account":%d,"amount":%d,"note":%q}`, i%10_000, i%7+1, "sixty-four bytes of what an event says about what happened")))
		kafka.SetKey(msg, fmt.Append(nil, i%10_000))
		msgs = append(msgs, msg)
	}
	if err := pub.Publish(topic, msgs...); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// arrived waits for as many records as there are events. A repeat would be counted in the place of another event: there
// are none in a run without failures, and more than there should be is an error.
func (b *bench) arrived(ctx context.Context, topic string, events int) error {
	cl, err := load.Client(b.brokers)
	if err != nil {
		return err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last, moved := int64(-1), time.Now()
	for time.Since(moved) < stalled {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		var n int64
		ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
		if n == int64(events) {
			return nil
		}
		if n > int64(events) {
			return fmt.Errorf("%d records of %d events", n, events)
		}
		if n != last {
			last, moved = n, time.Now()
		}
	}
	return fmt.Errorf("%w: %d of %d", errMissing, last, events)
}

// slowly reaches the brokers over connections on which no answer comes before relayAcks.
func slowly(brokers []string) kafka.ClientConfig {
	return kafka.ClientConfig{Brokers: brokers, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &slowConn{Conn: conn}, err
	}}
}

type slowConn struct {
	net.Conn

	asked atomic.Int64
}

func (c *slowConn) Write(p []byte) (int, error) {
	c.asked.Store(time.Now().UnixNano())
	return c.Conn.Write(p)
}

func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if wait := time.Until(time.Unix(0, c.asked.Load()).Add(relayAcks)); wait > 0 {
		<-time.After(wait)
	}
	return n, err
}
