package parking

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/migrations"
)

// ListHeads gives the heads that match, those that are parked for longest first, at most limit of them, all for 0. An
// error of each ends it and comes back as it is.
func ListHeads(ctx context.Context, pool *pgxpool.Pool, f Filter, limit int, each func(*Waiting) error) error {
	return list(ctx, pool, headsSQL, f, limit, each)
}

// ListRecords is ListHeads of heads and those behind them, in the order of their lines.
func ListRecords(ctx context.Context, pool *pgxpool.Pool, f Filter, limit int, each func(*Waiting) error) error {
	return list(ctx, pool, allSQL, f, limit, each)
}

func list(ctx context.Context, pool *pgxpool.Pool, sql string, f Filter, limit int, each func(*Waiting) error) error {
	if err := migrations.Check(ctx, pool); err != nil {
		return fmt.Errorf("parking: %w", err)
	}
	if limit > 0 && f.bySQL() {
		sql += " limit " + strconv.Itoa(limit)
	}
	var parts []int32
	var offs []int64
	for _, at := range f.At {
		parts, offs = append(parts, at.Partition), append(offs, at.Offset)
	}
	rows, err := pool.Query(ctx, sql, f.Groups, f.Routes, nilTime(f.Since), nilTime(f.Until), parts, offs)
	if err != nil {
		return fmt.Errorf("list what is parked: %w", err)
	}
	defer rows.Close()
	for n := 0; rows.Next(); {
		w, err := scanWaiting(rows)
		if err != nil {
			return fmt.Errorf("list what is parked: %w", err)
		}
		if !f.matches(w) {
			continue
		}
		if err := each(w); err != nil {
			return err
		}
		if n++; n == limit {
			return nil
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list what is parked: %w", err)
	}
	return nil
}

func nilTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func scanWaiting(rows pgx.Rows) (*Waiting, error) {
	w := &Waiting{}
	var envelope, history []byte
	var due *time.Time
	if err := rows.Scan(&w.Group, &w.Route, &w.Line.Consumer, &w.Line.Key, &w.TopicID, &w.Partition, &w.Offset, &w.ParkedAt,
		&envelope, &history, &w.State, &due, &w.Round, &w.Deaths, &w.Behind); err != nil {
		return nil, err
	}
	if due != nil {
		w.Due = *due
	}
	w.Key = w.Line.Key
	w.Record, w.Err = Decode(envelope)
	w.History, _ = DecodeHistory(history) // what is there is shown all the same
	return w, nil
}

const (
	waitingColumns = `select c.consumer_group, c.route, l.consumer_id, l.key_id, r.topic_id, r.part, r.off, r.parked_at, r.envelope, r.history,
	case when %s then 'behind' when l.due = 'infinity' then 'held' when l.due <= statement_timestamp() then 'due'
		when l.token <> 0 then 'running' else 'waiting' end,
	case when l.due = 'infinity' then null else l.due end, l.round, greatest(l.starts - case when l.token <> 0 then 1 else 0 end, 0), %s
from headrace.parked_keys l
join headrace.consumers c on c.id = l.consumer_id
`
	waitingWhere = `
where (coalesce($1::text[], '{}') = '{}' or c.consumer_group = any($1::text[])) and (coalesce($2::text[], '{}') = '{}' or c.route = any($2::text[]))
	and ($3::timestamptz is null or %[1]s >= $3::timestamptz) and ($4::timestamptz is null or %[1]s < $4::timestamptz)
	and (coalesce($5::int[], '{}') = '{}' or (r.part, r.off) in (select * from unnest($5::int[], $6::bigint[])))
order by l.since, l.consumer_id, l.key_id`
	ofLine = "select %s from headrace.parked_records h where h.consumer_id = l.consumer_id and h.key_id = l.key_id"
)

var (
	headsSQL = fmt.Sprintf(waitingColumns, "false", "("+fmt.Sprintf(ofLine, "count(*)")+") - 1") +
		"cross join lateral (" + fmt.Sprintf(ofLine, "*") + " order by h.topic_id, h.part, h.off limit 1) r" +
		fmt.Sprintf(waitingWhere, "l.since") // nothing of the records is needed for the order, so a limit reads few of them
	allSQL = fmt.Sprintf(waitingColumns, "exists ("+fmt.Sprintf(ofLine, "1")+" and (h.topic_id, h.part, h.off) < (r.topic_id, r.part, r.off))", "0::bigint") +
		"join headrace.parked_records r on r.consumer_id = l.consumer_id and r.key_id = l.key_id" +
		fmt.Sprintf(waitingWhere, "r.parked_at") + ", r.topic_id, r.part, r.off"
)
