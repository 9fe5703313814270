package audit

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// effect is a row that a handler wrote.
type effect struct {
	at       place
	id, key  string
	seq      int64
	replayed bool // of a record that was read from the replay topic
}

const (
	effectedRow = 0
	skippedRow  = 1
	deadRow     = 2
	movedRow    = 3
)

// row is what the inbox says of an id.
type row struct {
	State       int16
	Coordinates int64
	Original    *int64 // of a record that was replayed: where it was first
	Reason      *string
}

// is says that the row is of the record that was first read there.
func (r row) is(coordinates int64) bool {
	return r.Original == nil && r.Coordinates == coordinates || r.Original != nil && *r.Original == coordinates
}

func readEffects(ctx context.Context, conn *pgx.Conn, route, topic string) (map[place][]effect, error) {
	rows, err := conn.Query(ctx, `select part, off, id, key, seq from effects where route = $1 and topic = $2 order by seq`, route, topic)
	if err != nil {
		return nil, err
	}
	found := map[place][]effect{}
	var e effect
	var id, key []byte
	_, err = pgx.ForEachRow(rows, []any{&e.at.partition, &e.at.offset, &id, &key, &e.seq}, func() error {
		e.id, e.key = string(id), string(key)
		found[e.at] = append(found[e.at], e)
		return nil
	})
	return found, err
}

func readInbox(ctx context.Context, conn *pgx.Conn, group, route string) (map[uuid.UUID]row, error) {
	rows, err := conn.Query(ctx, `select i.message_id, i.state, i.coordinates, i.original, i.reason from headrace.inbox i
		join headrace.consumers c on c.id = i.consumer_id where c.consumer_group = $1 and c.route = $2`, group, route)
	if err != nil {
		return nil, err
	}
	found := map[uuid.UUID]row{}
	var id uuid.UUID
	var r row
	_, err = pgx.ForEachRow(rows, []any{&id, &r.State, &r.Coordinates, &r.Original, &r.Reason}, func() error {
		found[id] = r
		return nil
	})
	return found, err
}

// readParked are the ids of the records that wait in the database.
func readParked(ctx context.Context, conn *pgx.Conn, group, route string) (map[uuid.UUID]bool, error) {
	rows, err := conn.Query(ctx, `select p.message_id from headrace.parked_records p
		join headrace.consumers c on c.id = p.consumer_id where c.consumer_group = $1 and c.route = $2`, group, route)
	if err != nil {
		return nil, err
	}
	found := map[uuid.UUID]bool{}
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		found[id] = true
		return nil
	})
	return found, err
}

// balances finds accounts that do not have what their effects add up to.
func balances(ctx context.Context, conn *pgx.Conn, route string) (found []string, err error) {
	rows, err := conn.Query(ctx, `select account, coalesce(b.amount, 0), coalesce(e.amount, 0) from
		(select account, amount from balances where route = $1) b full join
		(select account, sum(amount)::bigint amount from effects where route = $1 group by account) e using (account)
		where coalesce(b.amount, 0) <> coalesce(e.amount, 0)`, route)
	if err != nil {
		return nil, err
	}
	var account, has, should int64
	_, err = pgx.ForEachRow(rows, []any{&account, &has, &should}, func() error {
		found = append(found, fmt.Sprintf("route %s: account %d has %d, and its effects are %d", route, account, has, should))
		return nil
	})
	return found, err
}

// transactions finds those that somebody has left open in this database.
func transactions(ctx context.Context, conn *pgx.Conn) (found []string, err error) {
	rows, err := conn.Query(ctx, `select pid, state, left(query, 60) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null`)
	if err != nil {
		return nil, err
	}
	var pid int
	var state, query string
	_, err = pgx.ForEachRow(rows, []any{&pid, &state, &query}, func() error {
		found = append(found, fmt.Sprintf("backend %d is %s in a transaction: %s", pid, state, query))
		return nil
	})
	return found, err
}
