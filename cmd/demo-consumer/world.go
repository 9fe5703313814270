package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/kafka"
)

// world is what the demo runs in: a broker and a database, brought along or somebody else's.
type world struct {
	client      kafka.ClientConfig
	dsn         string
	db          *pgxpool.Pool
	paymentsDSN string // the payment service's: a server of its own, or a schema of its own on somebody else's
	gate        *gate
	database    *embedded.Server // nil if it is somebody else's
	paymentsDB  *embedded.Server // the payment service's, nil if it is somebody else's
	broker      *kfake.Cluster   // nil if it is somebody else's
}

// open brings up what the settings do not name.
func open(ctx context.Context, s settings, log *slog.Logger) (*world, error) {
	w := &world{client: kafka.ClientConfig{Brokers: s.brokers, Logger: log}, dsn: s.dsn, paymentsDSN: s.dsn, gate: newGate()}
	if err := errors.Join(w.openBroker(), w.openDatabase(ctx)); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) openBroker() error {
	if len(w.client.Brokers) > 0 {
		return nil
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return fmt.Errorf("built-in broker: %w", err)
	}
	w.broker, w.client.Brokers = broker, broker.ListenAddrs()
	return nil
}

func (w *world) openDatabase(ctx context.Context) error {
	if w.dsn == "" {
		if err := w.startServers(ctx); err != nil {
			return err
		}
	}
	cfg, err := pgxpool.ParseConfig(w.dsn)
	if err != nil {
		return fmt.Errorf("-dsn: %w", err)
	}
	cfg.ConnConfig.DialFunc = w.gate.through(cfg.ConnConfig.DialFunc)
	w.db, err = pgxpool.NewWithConfig(ctx, cfg)
	return err
}

// startServers starts a Postgres for the orders and one for the payment service, whose outages are each their own.
func (w *world) startServers(ctx context.Context) error {
	start := func(server **embedded.Server) func() error {
		return func() (err error) {
			*server, err = embedded.Postgres(ctx, embedded.Config{})
			return err
		}
	}
	var both errgroup.Group
	both.Go(start(&w.database))
	both.Go(start(&w.paymentsDB))
	if err := both.Wait(); err != nil {
		return err
	}
	w.dsn, w.paymentsDSN = w.database.DSN(), w.paymentsDB.DSN()
	return nil
}

// topics makes the topics of orders and of events. The consumers make their dead letter topics themselves.
func (w *world) topics(ctx context.Context, s settings) error {
	admin, err := kafka.NewAdmin(w.client)
	if err != nil {
		return err
	}
	defer admin.Close()
	return errors.Join(
		admin.CreateTopic(ctx, kafka.TopicSpec{Name: s.topic, Partitions: s.partitions}),
		admin.CreateTopic(ctx, kafka.TopicSpec{Name: chargedTopic(s.topic), Partitions: s.partitions}),
	)
}

// away takes the database away and brings it back when the returned function is called: our own server is stopped as
// an operator would, somebody else's is only cut off from this process.
func (w *world) away(ctx context.Context) (back func() error, err error) {
	if w.database == nil {
		w.gate.shut()
		return func() error { w.gate.open(); return nil }, nil
	}
	if err := w.database.Stop(); err != nil {
		return nil, err
	}
	return func() error { return w.database.Start(ctx) }, nil
}

func (w *world) close() {
	if w.db != nil {
		w.db.Close()
	}
	if w.broker != nil {
		w.broker.Close()
	}
	for _, server := range []*embedded.Server{w.database, w.paymentsDB} {
		if server != nil {
			_ = server.Close() // its directory goes with the process in any case
		}
	}
}
