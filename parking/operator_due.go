package parking

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/record"
)

// maxDue is how many lines are made due in one transaction.
const maxDue = 500

// MakeDue makes lines due now, also held ones, and gives those that it has: the others are gone, or somebody works on
// them. Nothing is spent: a line's round stays. After an error some may be due; asking again is safe.
func MakeDue(ctx context.Context, pool *pgxpool.Pool, lines []LineID) (due map[LineID]bool, err error) {
	due = make(map[LineID]bool, len(lines))
	for chunk := range slices.Chunk(lines, maxDue) {
		consumers, keys := make([]int32, len(chunk)), make([]int64, len(chunk))
		for i, l := range chunk {
			consumers[i], keys[i] = l.Consumer, l.Key
		}
		rows, err := pool.Query(ctx, makeDueSQL, consumers, keys)
		if err == nil {
			var l LineID
			_, err = pgx.ForEachRow(rows, []any{&l.Consumer, &l.Key}, func() error { due[l] = true; return nil })
		}
		if err != nil {
			return due, fmt.Errorf("make parked keys due: %w", err)
		}
	}
	return due, nil
}

// makeDueSQL is retrySQL for many. Locked in the order of their keys, like everything that locks several.
const makeDueSQL = `with theirs as (
	select l.consumer_id, l.key_id from headrace.parked_keys l
	join unnest($1::int[], $2::bigint[]) u(consumer_id, key_id) using (consumer_id, key_id)
	where l.token = 0 or l.due <= statement_timestamp()
	order by l.consumer_id, l.key_id for update of l
)
update headrace.parked_keys l set due = statement_timestamp() from theirs
where l.consumer_id = theirs.consumer_id and l.key_id = theirs.key_id and (l.token = 0 or l.due <= statement_timestamp())
returning l.consumer_id, l.key_id`

// IsParked says whether a record that a route has read, and that was not tried since it came, is parked.
func IsParked(ctx context.Context, pool *pgxpool.Pool, group, route string, r *record.Record) (parked bool, err error) {
	err = pool.QueryRow(ctx, isParkedSQL, group, route, []int64{KeyID(r, true), KeyID(r, false)}, r.TopicID.String(), r.Partition, r.Offset).Scan(&parked)
	if err != nil {
		return false, fmt.Errorf("ask whether a record is parked: %w", err)
	}
	return parked, nil
}

const isParkedSQL = `select exists (select from headrace.parked_records r join headrace.consumers c on c.id = r.consumer_id
where c.consumer_group = $1 and c.route = $2 and r.key_id = any($3::bigint[]) and r.topic_id = $4::text::uuid and r.part = $5::int and r.off = $6::bigint)`
