package member

import (
	"context"
	"errors"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/test/attack/load"
)

const (
	effectSQL = `insert into effects (route, topic, part, off, id, key, account, amount, made) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	postSQL   = `insert into balances as b (route, account, amount) values ($1, $2, $3)
		on conflict (route, account) do update set amount = b.amount + excluded.amount`
	lockSQL   = `select from balances where route = $1 and account = any($2) for update`
	sleepSQL  = `select pg_sleep($1::float8 / 1000)`
	brokenSQL = `select 1 / (now() - now() <> interval '0')::int`
)

var errForGood = errors.New("no such account")

func effectOf(route string, e consumer.Event[load.Order]) []any {
	return []any{route, e.Topic, e.Partition, e.Offset, []byte(e.ID), e.Key, e.Data.Account, e.Data.Amount, e.Timestamp}
}

// execute writes the effect, and then does what the record says.
func execute(ctx context.Context, tx pgx.Tx, route string, e consumer.Event[load.Order]) error {
	if _, err := tx.Exec(ctx, effectSQL, effectOf(route, e)...); err != nil {
		return err
	}
	if sql, args := statement(route, e.Data); sql != "" {
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, postSQL, route, e.Data.Account, e.Data.Amount); err != nil {
		return err
	}
	if e.Data.Do == load.Breaks {
		_, _ = tx.Exec(ctx, brokenSQL) // as a handler that logs its errors and goes on
	}
	return verdict(e.Data, e.Attempt)
}

// queue is execute for a route that queues.
func queue(b *pgx.Batch, route string, e consumer.Event[load.Order]) error {
	b.Queue(effectSQL, effectOf(route, e)...)
	if sql, args := statement(route, e.Data); sql != "" {
		b.Queue(sql, args...)
	}
	b.Queue(postSQL, route, e.Data.Account, e.Data.Amount)
	if e.Data.Do == load.Breaks {
		b.Queue(brokenSQL)
	}
	return verdict(e.Data, e.Attempt)
}

// together is execute for a whole group. It does not say whose a statement was that failed.
func together(ctx context.Context, tx pgx.Tx, route string, es []consumer.Event[load.Order]) error {
	b, failed := &pgx.Batch{}, fault.Members{}
	for i, e := range es {
		failed[i] = queue(b, route, e)
	}
	if len(failed.Failed()) > 0 {
		return failed
	}
	return tx.SendBatch(ctx, b).Close()
}

// statement is what the record has executed beside its effect, "" for nothing.
func statement(route string, o load.Order) (sql string, args []any) {
	switch o.Do {
	case load.Slow:
		return sleepSQL, []any{o.N}
	case load.Deadlock: // N first, Account then
		return lockSQL, []any{route, []int{o.N}}
	}
	return "", nil
}

// verdict is what becomes of a record without asking the database.
func verdict(o load.Order, attempt int) error {
	switch o.Do {
	case load.Fail:
		return errForGood
	case load.Flaky:
		if attempt <= o.N {
			return fault.Transient(errors.New("not now"))
		}
	case load.Skips:
		return fault.Skip("cancelled")
	case load.Panics:
		panic("attack: boom")
	case load.Exit:
		os.Exit(17)
	case load.Hang:
		select {}
	case load.Hog:
		hog()
	}
	return nil
}
