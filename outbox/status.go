package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/migrations"
)

// countedRows is up to how many rows of a topic are counted; of one with more in a table above sizePages an estimate is
// given.
const countedRows = 2000

// topicsSQL goes from topic to topic by their index, as readAroundSQL does. A topic of a few rows may have none among the
// pages that were drawn by lot, or too many of them, so those are counted.
const topicsSQL = `with recursive t as (
	(select topic from headrace.outbox order by topic limit 1)
	union all
	select (select o.topic from headrace.outbox o where o.topic > t.topic order by o.topic limit 1) from t where t.topic is not null
), p as (select greatest(pg_relation_size('headrace.outbox') / current_setting('block_size')::bigint, $1::bigint)::numeric / $1::bigint as share),
	s as (select topic, sum(events) as events, sum(bytes) as bytes
		from headrace.outbox tablesample system ((select 100.0 / share from p)) group by topic)
select t.topic,
	case when few.n < $2::int then few.events else greatest(few.events, s.events * p.share) end::bigint,
	case when few.n < $2::int then few.bytes else greatest(few.bytes, s.bytes * p.share) end::bigint,
	few.age::float8
from t cross join p left join s on s.topic = t.topic
	cross join lateral (select count(*) as n, sum(o.events) as events, sum(o.bytes) as bytes,
		extract(epoch from clock_timestamp() - min(o.created_at)) as age
		from (select events, bytes, created_at from headrace.outbox o where o.topic = t.topic order by o.id limit $2::int) o) few
where t.topic is not null order by t.topic`

// Waiting is what waits to be sent to one topic.
type Waiting struct {
	Topic string
	// Events is how many, Bytes what they are on the wire, uncompressed.
	Events, Bytes int64
	// Oldest is the age of the oldest of them.
	Oldest time.Duration
}

// Topics tells what waits in the outbox of pool's database, by topic and in their order; nothing of a topic for which
// nothing waits. A topic with many events in a table above some 16 MB has an estimate. The error is a migrations.ErrVersion
// where the schema is not this build's, else the database's.
func Topics(ctx context.Context, pool *pgxpool.Pool) ([]Waiting, error) {
	if err := migrations.Check(ctx, pool); err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, topicsSQL, sizePages, countedRows)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(from pgx.CollectableRow) (w Waiting, err error) {
		var age float64
		err = from.Scan(&w.Topic, &w.Events, &w.Bytes, &age)
		w.Oldest = seconds(age)
		return w, err
	})
}
