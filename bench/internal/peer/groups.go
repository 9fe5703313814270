package peer

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/bench/internal/child"
)

// franzRows executes an UPDATE a record, all of a group in one trip.
func franzRows(ctx context.Context, s *child.Session) error { return consume(ctx, s, rows) }

// franzSet adds up the group's postings by account, and executes one UPDATE of all.
func franzSet(ctx context.Context, s *child.Session) error { return consume(ctx, s, set) }

// franzCTE does inbox and effects in one statement, which is a transaction of its own.
func franzCTE(ctx context.Context, s *child.Session) error { return consume(ctx, s, cte) }

const (
	insertInbox = `insert into stock_inbox select 'post', unnest($1::uuid[]) on conflict do nothing returning message_id`
	updateSet   = `update accounts a set balance = a.balance + s.amount
		from unnest($1::int[], $2::bigint[]) s(id, amount) where a.id = s.id`
	insertAndUpdate = `with fresh as (` + insertInbox + `), sums as (
			select r.account, sum(r.amount)::bigint amount from unnest($1::uuid[], $2::int[], $3::bigint[]) r(id, account, amount)
			join fresh on fresh.message_id = r.id group by r.account)
		update accounts a set balance = a.balance + sums.amount from sums where a.id = sums.account`
)

// rows is a transaction of two trips: one opens it and inserts the inbox rows, one has the updates and the COMMIT.
func rows(ctx context.Context, conn *pgx.Conn, items []item) error {
	return inTwoTrips(ctx, conn, items, func(b *pgx.Batch, fresh []item) {
		for _, it := range fresh {
			b.Queue(updateAccount, it.Amount, it.Account)
		}
	})
}

// set is the same with one UPDATE. A row that a statement meets twice is updated once, so it adds up before.
func set(ctx context.Context, conn *pgx.Conn, items []item) error {
	return inTwoTrips(ctx, conn, items, func(b *pgx.Batch, fresh []item) {
		accounts, amounts := sums(fresh)
		b.Queue(updateSet, accounts, amounts)
	})
}

func sums(items []item) (accounts []int32, amounts []int64) {
	at := make(map[int]int, len(items))
	for _, it := range items {
		i, known := at[it.Account]
		if !known {
			i = len(accounts)
			at[it.Account] = i
			accounts, amounts = append(accounts, int32(it.Account)), append(amounts, 0)
		}
		amounts[i] += it.Amount
	}
	return accounts, amounts
}

func inTwoTrips(ctx context.Context, conn *pgx.Conn, items []item, effects func(b *pgx.Batch, fresh []item)) (err error) {
	fresh, err := begin(ctx, conn, items)
	if err == nil {
		var b pgx.Batch
		effects(&b, fresh)
		b.Queue("commit")
		err = conn.SendBatch(ctx, &b).Close()
	}
	if err != nil {
		_, undo := conn.Exec(ctx, "rollback")
		return errors.Join(err, undo)
	}
	return nil
}

// begin opens the transaction, inserts the inbox rows and returns the items that were not known, in their order.
func begin(ctx context.Context, conn *pgx.Conn, items []item) ([]item, error) {
	var b pgx.Batch
	b.Queue("begin")
	b.Queue(insertInbox, ids(items))
	results := conn.SendBatch(ctx, &b)
	_, err := results.Exec()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	answer, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	inserted, err := pgx.CollectRows(answer, pgx.RowTo[[16]byte])
	if err := errors.Join(err, results.Close()); err != nil {
		return nil, err
	}
	if len(inserted) == len(items) {
		return items, nil
	}
	isFresh := make(map[uuid.UUID]bool, len(inserted))
	for _, id := range inserted {
		isFresh[id] = true
	}
	var fresh []item
	for _, it := range items {
		if isFresh[it.id] {
			fresh = append(fresh, it)
		}
	}
	return fresh, nil
}

func cte(ctx context.Context, conn *pgx.Conn, items []item) error {
	accounts, amounts := make([]int32, len(items)), make([]int64, len(items))
	for i, it := range items {
		accounts[i], amounts[i] = int32(it.Account), it.Amount
	}
	_, err := conn.Exec(ctx, insertAndUpdate, ids(items), accounts, amounts)
	return err
}

func ids(items []item) [][16]byte {
	out := make([][16]byte, len(items))
	for i, it := range items {
		out[i] = it.id
	}
	return out
}
