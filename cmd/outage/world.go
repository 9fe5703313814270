package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/kafka"
)

// world is the broker and the database that the phases share.
type world struct {
	broker   *kfake.Cluster
	client   kafka.ClientConfig
	database *embedded.Server
}

// paymentsDatabase is the payment service's: nothing of the consumer's is in it.
const paymentsDatabase = "payments"

// Nothing in bookings is unique: were an order booked twice, two rows would say so.
const schema = `create table bookings (topic text not null, order_id text not null, charge_id uuid not null)`

func open(ctx context.Context) (*world, error) {
	w := &world{}
	var err error
	if w.broker, err = kfake.NewCluster(kfake.NumBrokers(1)); err != nil {
		return nil, fmt.Errorf("built-in broker: %w", err)
	}
	w.client.Brokers = w.broker.ListenAddrs()
	if err := w.openDatabase(ctx); err != nil {
		w.close()
		return nil, fmt.Errorf("built-in database: %w", err)
	}
	return w, nil
}

func (w *world) openDatabase(ctx context.Context) (err error) {
	if w.database, err = embedded.Postgres(ctx, embedded.Config{}); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, w.database.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the server ends with us
	if _, err := conn.Exec(ctx, schema); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create database "+paymentsDatabase)
	return err
}

// phases has every kind of outage side by side.
func (w *world) phases(ctx context.Context, s settings) ([]*phase, error) {
	all := make([]*phase, len(s.kinds))
	group, ctx := errgroup.WithContext(ctx)
	for i, k := range s.kinds {
		all[i] = &phase{settings: s, kind: k, world: w, topic: "orders-" + k.name, watch: newWatch()}
		group.Go(func() error {
			if err := all[i].run(ctx); err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			return nil
		})
	}
	return all, group.Wait()
}

func (w *world) close() {
	w.broker.Close()
	if w.database != nil {
		_ = w.database.Close() // its directory goes with the process in any case
	}
}
