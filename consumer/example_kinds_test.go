package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
)

// A handler that queues can be tested without a database: what it did is in the batch.
func ExampleQueueRoute() {
	route := consumer.QueueRoute[OrderPlaced]{
		Name: "post-order-to-ledger", Topic: "orders",
		Queue: func(b *pgx.Batch, e consumer.Event[OrderPlaced]) error {
			b.Queue(`update accounts set balance = balance - $1 where id = $2`, e.Data.Amount, e.Data.Account)
			b.Queue(`insert into entries (order_id, amount) values ($1, $2)`, e.ID, e.Data.Amount)
			return nil
		},
	}
	b := &pgx.Batch{}
	err := route.Queue(b, consumer.Event[OrderPlaced]{ID: "order-1", Data: OrderPlaced{Account: 7, Amount: 10}})
	for _, q := range b.QueuedQueries {
		fmt.Println(q.SQL, q.Arguments)
	}
	fmt.Println(err)
	// Output:
	// update accounts set balance = balance - $1 where id = $2 [10 7]
	// insert into entries (order_id, amount) values ($1, $2) [order-1 10]
	// <nil>
}

// A handler of a whole group writes set-based SQL. An account may come several times, and an update takes each row once:
// so sum up first. The events that cannot be posted are named; the others are not affected.
func ExampleBatchRoute() {
	route := consumer.BatchRoute[OrderPlaced]{
		Name: "post-order-to-ledger", Topic: "orders",
		Apply: func(ctx context.Context, tx pgx.Tx, es []consumer.Event[OrderPlaced]) error {
			failed := fault.Members{}
			accounts, amounts := make([]int, len(es)), make([]int64, len(es))
			for i, e := range es {
				if e.Data.Amount <= 0 {
					failed[i] = fault.Permanent(errors.New("amount is not positive"))
				}
				accounts[i], amounts[i] = e.Data.Account, e.Data.Amount
			}
			if len(failed) > 0 {
				return failed
			}
			_, err := tx.Exec(ctx, `update accounts a set balance = balance - u.amount
				from (select id, sum(amount) as amount from unnest($1::int[], $2::bigint[]) as t(id, amount) group by id) u
				where a.id = u.id`, accounts, amounts)
			return err
		},
	}
	err := route.Apply(context.Background(), nil, []consumer.Event[OrderPlaced]{
		{Data: OrderPlaced{Account: 7, Amount: 10}}, {Data: OrderPlaced{Account: 8, Amount: -1}},
	})
	fmt.Println(err)
	// Output:
	// failed of the group: 1; [1] amount is not positive
}
