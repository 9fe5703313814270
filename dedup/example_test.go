package dedup_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// A record that is delivered twice has its effect once.
func ExampleRoute_Run() {
	ctx := context.Background()
	pool, stop := database(ctx)
	defer stop()

	inbox, err := dedup.Open(ctx, pool, dedup.Config{})
	if err != nil {
		log.Panic(err)
	}
	defer inbox.Close()
	route, err := inbox.Route(ctx, dedup.RouteConfig{Group: "billing", Name: "post-order-to-ledger"})
	if err != nil {
		log.Panic(err)
	}

	withdraw := func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		_, err := tx.Exec(ctx, "update accounts set balance = balance - 10")
		return err
	}
	for range 2 {
		order := delivered("order-1")
		route.Run(ctx, []*record.Record{order}, dedup.Apply(withdraw))
		fmt.Println(order.Outcome(), order.Err)
	}
	var balance int
	if err := pool.QueryRow(ctx, "select balance from accounts").Scan(&balance); err != nil {
		log.Panic(err)
	}
	fmt.Println("balance", balance)
	// Output:
	// effected <nil>
	// effected <nil>
	// balance 90
}

// A call out cannot be in the transaction: it comes before, for a record that still needs it, and guarded.
func ExampleRoute_Enter() {
	ctx := context.Background()
	pool, stop := database(ctx)
	defer stop()
	inbox, err := dedup.Open(ctx, pool, dedup.Config{})
	if err != nil {
		log.Panic(err)
	}
	defer inbox.Close()
	route, err := inbox.Route(ctx, dedup.RouteConfig{Group: "billing", Name: "charge-order"})
	if err != nil {
		log.Panic(err)
	}
	charge := func(r *record.Record) error {
		answers, err := route.Look(ctx, []*record.Record{r})
		if err != nil || answers[0] != dedup.Fresh && answers[0] != dedup.DeadReplay {
			return err // Run says what becomes of it
		}
		leave, err := route.Enter(ctx, r)
		if err != nil {
			return err
		}
		defer leave()
		fmt.Println("charging", r.Identity.ID)
		return nil
	}
	for range 2 {
		order := delivered("order-1")
		if err := charge(order); err != nil {
			log.Panic(err)
		}
		route.Run(ctx, []*record.Record{order}, dedup.Apply(func(context.Context, pgx.Tx, *record.Record) error { return nil }))
		fmt.Println(order.Outcome())
	}
	// Output:
	// charging order-1
	// effected
	// effected
}

// The first resolver that finds an identity decides; failing all, the record's coordinates do.
func ExampleIdentify() {
	r := &record.Record{Topic: "orders", Offset: 42, Value: []byte(`{"order": {"id": 7}}`)}
	chain := []dedup.Resolver{dedup.Header("x-request-id"), dedup.Field("order.id"), dedup.CloudEvents()}
	err := dedup.Identify(r, chain...)
	fmt.Println(r.Identity.ID, r.Identity.FromCoordinates, err)

	r.Value = []byte(`{}`)
	err = dedup.Identify(r, chain...)
	fmt.Println(r.Identity.ID, r.Identity.FromCoordinates, err)
	// Output:
	// 7 false <nil>
	// 00000000-0000-0000-0000-000000000000/0/42 true <nil>
}

// A UUID is stored as it is, any other text as a UUIDv8.
func ExampleKeyOf() {
	fmt.Println(dedup.KeyOf("0198f3a2-5b1c-7def-8123-456789abcdef"))
	fmt.Println(dedup.KeyOf("order-1"))
	// Output:
	// 0198f3a2-5b1c-7def-8123-456789abcdef
	// 0bafe221-56d2-898c-943b-86040446d366
}

// A dead record's verdict is committed before its dead letter is produced.
func ExampleAnswer_Outcome() {
	for _, a := range []dedup.Answer{dedup.Buried, dedup.DeadOwn, dedup.Own, dedup.Duplicate} {
		fmt.Println(a, "settles as", a.Outcome())
	}
	// Output:
	// buried settles as dead
	// dead_own settles as dead
	// own settles as effected
	// duplicate settles as duplicate
}

// What the handlers queue is sent together, with COMMIT; a record whose statement fails is left out.
func ExampleQueue() {
	ctx := context.Background()
	pool, stop := database(ctx)
	defer stop()

	inbox, err := dedup.Open(ctx, pool, dedup.Config{})
	if err != nil {
		log.Panic(err)
	}
	defer inbox.Close()
	route, err := inbox.Route(ctx, dedup.RouteConfig{Group: "billing", Name: "post-order-to-ledger"})
	if err != nil {
		log.Panic(err)
	}
	orders := []*record.Record{delivered("order-1"), delivered("order-2"), delivered("order-3")}
	route.Run(ctx, orders, dedup.Queue(func(_ context.Context, b *pgx.Batch, r *record.Record) error {
		b.Queue("update accounts set balance = balance - 10")
		if r.Identity.ID == "order-2" {
			b.Queue("update accounts set balance = balance / 0")
		}
		return nil
	}))
	for _, order := range orders {
		fmt.Println(order.Identity.ID, order.Outcome(), order.Err)
	}
	var balance int
	if err := pool.QueryRow(ctx, "select balance from accounts").Scan(&balance); err != nil {
		log.Panic(err)
	}
	fmt.Println("balance:", balance)
	// Output:
	// order-1 effected <nil>
	// order-2 unsettled ERROR: division by zero (SQLSTATE 22012)
	// order-3 effected <nil>
	// balance: 80
}

func database(ctx context.Context) (*pgxpool.Pool, func()) {
	server, err := embedded.Postgres(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	pool, err := pgxpool.New(ctx, server.DSN())
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "create table accounts as select 100 as balance"); err != nil {
		log.Fatal(err)
	}
	return pool, func() {
		pool.Close()
		_ = server.Close()
	}
}

// delivered is a record as a Source delivers it.
func delivered(id string) *record.Record {
	r := &record.Record{Topic: "orders", Headers: []record.Header{{Key: record.UUIDHeader, Value: []byte(id)}}}
	r.Bind(claim{}, nil, "")
	if err := dedup.Identify(r, dedup.WatermillUUID()); err != nil {
		log.Fatal(err)
	}
	return r
}

type claim struct{}

func (claim) Settle(*record.Record, record.Outcome) bool { return true }
func (claim) GiveBack([]*record.Record)                  {}
func (claim) Wait([]*record.Record)                      {}
func (claim) Resume([]*record.Record) bool               { return true }
