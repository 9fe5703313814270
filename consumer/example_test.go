package consumer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/consumer"
)

type OrderPlaced struct {
	Account int
	Amount  int64
}

func post(ctx context.Context, tx pgx.Tx, e consumer.Event[OrderPlaced]) error {
	_, err := tx.Exec(ctx, `update accounts set balance = balance - $1 where id = $2`, e.Data.Amount, e.Data.Account)
	return err
}

func ExampleNew() {
	pool, err := pgxpool.New(context.Background(), "postgres://localhost/billing") // connects when it is used
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: []string{"localhost:9092"},
		Group:   "billing",
		DB:      pool,
	},
		consumer.Route[OrderPlaced]{
			Name:  "post-order-to-ledger", // permanent: the inbox remembers by it
			Topic: "orders",
			Apply: post,
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Plan())
	// Output:
	// budget of a record of route "post-order-to-ledger":
	//     3 attempts x AttemptTimeout 5s          15s
	//   + 2 back-offs from 200ms up to 10s      600ms
	//   + DeadLetterTimeout                       10s
	//   + CommitReserve                            5s
	//   =                                       30.6s, within MaxPollInterval 5m
	// a rebalance:
	//     DrainGrace               10s
	//   + HardGrace                 5s
	//   + CommitReserve             5s
	//   + HeartbeatInterval         1s
	//   + reserve                   1s
	//   =                          22s, within RebalanceTimeout 1m
}

// A plan that cannot fit is refused with its sum and the smallest change that makes it fit, beside everything else that
// is wrong.
func ExampleNew_refused() {
	_, err := consumer.New(consumer.Config{
		Brokers:         []string{"localhost:9092"},
		Group:           "billing",
		MaxPollInterval: 4 * time.Minute,
	},
		consumer.Route[OrderPlaced]{
			Name:    "post-order-to-ledger",
			Topic:   "orders",
			Apply:   post,
			Options: consumer.Options{AttemptTimeout: 90 * time.Second},
		},
	)
	fmt.Println(err)
	// Output:
	// the consumer cannot start, 2 problems:
	// - DB is nil
	//     fix: set Config.DB to a pool of the database that the handlers write to
	// - budget of a record of route "post-order-to-ledger":
	//       3 attempts x AttemptTimeout 1m30s      4m30s
	//     + 2 back-offs from 200ms up to 10s       600ms
	//     + DeadLetterTimeout                        10s
	//     + CommitReserve                             5s
	//     =                                      4m45.6s, exceeds MaxPollInterval 4m by 45.6s
	//     fix: lower AttemptTimeout to 1m14s, or raise MaxPollInterval to 4m45.6s
}
