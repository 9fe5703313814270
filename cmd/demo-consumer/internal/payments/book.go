package payments

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

// errOtherRequest is a key that came before, with another request.
var errOtherRequest = errors.New("this Idempotency-Key came with another request before")

// book is what was charged for one merchant. Only the key is unique: were an order charged under two keys, two lines
// would say so.
type book struct {
	db       *pgxpool.Pool
	merchant string
}

const schema = `
select pg_advisory_xact_lock(hashtext('headrace demo payments'));
create schema if not exists payments;
create table if not exists payments.charges (
	merchant text, key text, id uuid not null default gen_random_uuid(),
	order_id text not null, account int not null, amount bigint not null, charged_at timestamptz not null default now(),
	primary key (merchant, key)
)`

func (b *book) prepare(ctx context.Context) error {
	_, err := b.db.Exec(ctx, schema)
	return err
}

const (
	chargeSQL = `insert into payments.charges (merchant, key, order_id, account, amount) values ($1, $2, $3, $4, $5)
on conflict do nothing returning id`
	knownSQL = `select id, order_id, account, amount from payments.charges where merchant = $1 and key = $2`
	allSQL   = `select id, order_id, account, amount from payments.charges where merchant = $1 order by charged_at, id`
)

// charge enters a charge unless the key has one, and gives it; fresh says that it was entered now. A request that comes
// while another with its key is entered waits for that one's commit.
func (b *book) charge(ctx context.Context, key string, q Request) (c Charge, fresh bool, err error) {
	c.Request = q
	err = b.db.QueryRow(ctx, chargeSQL, b.merchant, key, q.Order, q.Account, q.Amount).Scan(&c.ID)
	if !errors.Is(err, pgx.ErrNoRows) {
		return c, err == nil, err
	}
	err = b.db.QueryRow(ctx, knownSQL, b.merchant, key).Scan(&c.ID, &c.Order, &c.Account, &c.Amount)
	if err == nil && c.Request != q {
		err = fmt.Errorf("order %s: %w", q.Order, errOtherRequest)
	}
	return c, false, err
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
