package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Books says where a contender remembers what it has dealt with.
type Books int

// Where contenders remember.
const (
	// StockInbox is the table of the peers.
	StockInbox Books = iota
	// Inbox is Headrace's, a row a record.
	Inbox
	// Offsets is Headrace's offset store, a row a partition.
	Offsets
	// Nothing is of those who only read: they have no effects either.
	Nothing
)

// Reset empties what a run writes, gives every account its row, and leaves no work of the run before to the next: the
// checkpoint is paid here, and every run pays the same for the first touch of a page after it.
func Reset(ctx context.Context, db *pgxpool.Pool, accounts int) error {
	const empty = `do $$ begin if to_regclass('headrace.inbox') is not null then truncate headrace.inbox; end if; end $$`
	if _, err := db.Exec(ctx, empty); err != nil {
		return err
	}
	return ResetBeside(ctx, db, accounts)
}

// ResetBeside leaves Headrace's inbox as it is.
func ResetBeside(ctx context.Context, db *pgxpool.Pool, accounts int) error {
	for _, sql := range []string{
		`create table if not exists accounts (id int primary key, balance bigint not null) with (fillfactor = 50)`,
		`create table if not exists stock_inbox (consumer text, message_id uuid, primary key (consumer, message_id))`,
		`truncate accounts, stock_inbox`,
		`do $$ begin if to_regclass('headrace.offsets') is not null then truncate headrace.offsets; end if; end $$`,
		`do $$ begin if to_regclass('headrace.outbox') is not null then truncate headrace.outbox; end if; end $$`,
		fmt.Sprintf(`insert into accounts select g, 0 from generate_series(0, %d) g`, accounts-1),
		`vacuum analyze accounts`,
		`checkpoint`,
	} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// Posted is the sum of all balances: amounts are positive, so the run is over when it is the topic's total. It reads one
// small table, whatever contender it is.
func Posted(ctx context.Context, db *pgxpool.Pool) (sum int64, err error) {
	err = db.QueryRow(ctx, `select coalesce(sum(balance), 0)::bigint from accounts`).Scan(&sum)
	return sum, err
}

// Verify says whether the accounts hold exactly what the topic adds up to, and the books what they must.
func Verify(ctx context.Context, db *pgxpool.Pool, t *Topic, books Books) error {
	if books == Nothing {
		return nil
	}
	return errors.Join(verifyBalances(ctx, db, t), verifyBooks(ctx, db, t, books))
}

func verifyBalances(ctx context.Context, db *pgxpool.Pool, t *Topic) error {
	rows, err := db.Query(ctx, `select id, balance from accounts`)
	if err != nil {
		return err
	}
	var id int
	var balance int64
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &balance}, func() error {
		n++
		if id < 0 || id >= len(t.Balances) || balance != t.Balances[id] {
			return fmt.Errorf("account %d has %d, which is not what its records add up to", id, balance)
		}
		return nil
	})
	if err == nil && n != len(t.Balances) {
		err = fmt.Errorf("there are %d accounts of %d", n, len(t.Balances))
	}
	return err
}

func verifyBooks(ctx context.Context, db *pgxpool.Pool, t *Topic, books Books) error {
	type count struct {
		what, sql string
		want      int
	}
	var counts []count
	switch books {
	case Nothing:
	case StockInbox:
		counts = []count{{"rows in the inbox", `select count(*) from stock_inbox`, t.Fresh}}
	case Inbox:
		counts = []count{
			{"effected rows in the inbox", `select count(*) from headrace.inbox where state = 0`, t.Remembered + t.Fresh},
			{"other rows in the inbox", `select count(*) from headrace.inbox where state <> 0 and reason <> 'exhausted'`, t.Dead},
		}
	case Offsets:
		counts = []count{
			{"effected rows in the inbox, which is not asked", `select count(*) from headrace.inbox where state = 0`, 0},
			{"dead rows in the inbox", `select count(*) from headrace.inbox where state <> 0`, t.Dead},
			{"records that the offset store has as done", `select coalesce(sum(low), 0)::bigint from headrace.offsets`, t.Records},
		}
	}
	for _, c := range counts {
		var n int
		if err := db.QueryRow(ctx, c.sql).Scan(&n); err != nil {
			return err
		}
		if n != c.want {
			return fmt.Errorf("%s: %d, not %d", c.what, n, c.want)
		}
	}
	return nil
}

// Buried says whether the topic's dead records have their rows in Headrace's inbox. A topic without any asks nobody.
func Buried(ctx context.Context, db *pgxpool.Pool, t *Topic) (bool, error) {
	if t.Dead == 0 {
		return true, nil
	}
	var n int
	err := db.QueryRow(ctx, `select count(*) from headrace.inbox where state <> 0`).Scan(&n)
	return n >= t.Dead, err
}
