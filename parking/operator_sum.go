package parking

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/migrations"
)

// Sum is what a route has parked.
type Sum struct {
	Group, Route string
	// Records are parked, of Keys keys.
	Records, Keys int64
	// Waiting, Due, Running and Held are keys.
	Waiting, Due, Running, Held int64
	// Oldest is since when its oldest head is parked, and Next when the first key that waits is due; zero for none.
	Oldest, Next time.Time
}

// Sums gives what each route has parked that has anything parked, of these groups and routes, all for none.
func Sums(ctx context.Context, pool *pgxpool.Pool, groups, routes []string) ([]Sum, error) {
	if err := migrations.Check(ctx, pool); err != nil {
		return nil, fmt.Errorf("parking: %w", err)
	}
	rows, err := pool.Query(ctx, sumsSQL, groups, routes)
	if err != nil {
		return nil, fmt.Errorf("sum up what is parked: %w", err)
	}
	sums, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Sum, err error) {
		var next *time.Time
		err = row.Scan(&s.Group, &s.Route, &s.Records, &s.Keys, &s.Waiting, &s.Due, &s.Running, &s.Held, &s.Oldest, &next)
		if next != nil {
			s.Next = *next
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("sum up what is parked: %w", err)
	}
	return sums, nil
}

const sumsSQL = `select c.consumer_group, c.route,
	coalesce((select sum(records) from headrace.parked_counts n where n.consumer_id = c.id), 0)::bigint, count(*),
	count(*) filter (where l.due > statement_timestamp() and l.due <> 'infinity' and l.token = 0),
	count(*) filter (where l.due <= statement_timestamp()),
	count(*) filter (where l.due > statement_timestamp() and l.due <> 'infinity' and l.token <> 0),
	count(*) filter (where l.due = 'infinity'), min(l.since),
	min(l.due) filter (where l.due > statement_timestamp() and l.due <> 'infinity' and l.token = 0)
from headrace.parked_keys l join headrace.consumers c on c.id = l.consumer_id
where (coalesce($1::text[], '{}') = '{}' or c.consumer_group = any($1::text[])) and (coalesce($2::text[], '{}') = '{}' or c.route = any($2::text[]))
group by c.id, c.consumer_group, c.route order by 1, 2`
