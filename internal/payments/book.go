package payments

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/idempotency"
)

// Request is what a merchant asks for: Amount cents of Account for Order.
type Request struct {
	Order   string `json:"order"`
	Account int    `json:"account"`
	Amount  int64  `json:"amount"`
}

// Charge is a line of the book, and the answer to a request.
type Charge struct {
	ID uuid.UUID `json:"id"`
	Request
}

// book is what was charged for one merchant. Nothing in it is unique but a line's number: that a key is charged once is
// package idempotency's to see to, and were it charged twice, two lines would say so.
type book struct {
	db       *pgxpool.Pool
	merchant string
}

// keysTable is the service's own: it has no other part of Headrace in its database.
const keysTable = "payments.idempotency"

const schema = `
select pg_advisory_xact_lock(hashtext('headrace demo payments'));
create schema if not exists payments;
create table if not exists payments.charges (
	merchant text not null, key text not null, id uuid not null default gen_random_uuid() primary key,
	order_id text not null, account int not null, amount bigint not null, charged_at timestamptz not null default now()
);
create index if not exists charges_merchant on payments.charges (merchant, charged_at, id);
`

func (b *book) prepare(ctx context.Context) error {
	_, err := b.db.Exec(ctx, schema+idempotency.Schema(keysTable))
	return err
}

const (
	chargeSQL = `insert into payments.charges (merchant, key, order_id, account, amount) values ($1, $2, $3, $4, $5) returning id`
	allSQL    = `select id, order_id, account, amount from payments.charges where merchant = $1 order by charged_at, id`
)

// charge enters a charge in tx.
func (b *book) charge(ctx context.Context, tx pgx.Tx, key string, q Request) (Charge, error) {
	c := Charge{Request: q}
	err := tx.QueryRow(ctx, chargeSQL, b.merchant, key, q.Order, q.Account, q.Amount).Scan(&c.ID)
	return c, err
}

func (b *book) all(ctx context.Context) ([]Charge, error) {
	rows, err := b.db.Query(ctx, allSQL, b.merchant)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Charge, err error) {
		err = row.Scan(&c.ID, &c.Order, &c.Account, &c.Amount)
		return c, err
	})
}
