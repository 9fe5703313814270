package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// sizePages is up to how many pages the table is counted. Of a larger one so many are drawn by lot, and stand for all.
const sizePages = 2000

// sizeSQL also finds the oldest transaction in the database that keeps what was deleted from being cleared away. The first
// row is about the oldest.
const sizeSQL = `with t as (select greatest(pg_relation_size('headrace.outbox') / current_setting('block_size')::bigint, $1::bigint) as pages),
	s as (select sum(events) as events, sum(bytes) as bytes
		from headrace.outbox tablesample system ((select 100.0 * $1::bigint / pages from t)))
select coalesce(s.events * t.pages / $1::bigint, 0)::bigint, coalesce(s.bytes * t.pages / $1::bigint, 0)::bigint,
	coalesce((select extract(epoch from clock_timestamp() - created_at) from headrace.outbox order by id limit 1), 0)::float8,
	coalesce((select extract(epoch from clock_timestamp() - min(xact_start)) from pg_stat_activity
		where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()), 0)::float8
from t, s`

func (t table) size(ctx context.Context) (i record.OutboxInfo, err error) {
	var oldest, snapshot float64
	err = t.pool.QueryRow(ctx, sizeSQL, sizePages).Scan(&i.Rows, &i.Bytes, &oldest, &snapshot)
	i.Oldest, i.Snapshot = seconds(oldest), seconds(snapshot)
	return i, err
}

// Size tells what waits in the outbox of pool's database, by an estimate where that is more than some 16 MB. The error is a migrations.ErrVersion where the schema is not this
// build's, else the database's.
func Size(ctx context.Context, pool *pgxpool.Pool) (record.OutboxInfo, error) {
	if err := migrations.Check(ctx, pool); err != nil {
		return record.OutboxInfo{}, err
	}
	return table{pool}.size(ctx)
}

func seconds(s float64) time.Duration { return max(time.Duration(s*float64(time.Second)), 0) }

// watch tells how large the outbox is, and raises the alarm when it is too large.
type watch struct {
	cfg    Config
	table  table
	lease  *lease
	behind bool // and that was told
	told   bool // of what waits, in this turn
}

func newWatch(cfg Config, t table, l *lease) *watch { return &watch{cfg: cfg, table: t, lease: l} }

// run looks until ctx ends, while it is this forwarder's turn.
func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		switch {
		case w.lease.held.Load():
			w.look(ctx)
		case w.told && w.lease.others.Load():
			// It was behind -> another one goes on and drains -> what was told last would raise an alert for ever.
			w.told, w.behind = false, false
			w.tell(record.OutboxInfo{})
		}
		backoff.Wait(ctx, w.cfg.StatsInterval)
	}
}

func (w *watch) tell(i record.OutboxInfo) {
	if w.cfg.Hooks.OnOutbox != nil {
		w.cfg.Hooks.OnOutbox(i)
	}
}

func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	i, err := w.table.size(ctx)
	if err != nil {
		return // whoever reads the table reports that
	}
	w.told = true
	w.tell(i)
	w.alarm(i)
}

// alarm reports once that the outbox is behind, and again after it has caught up.
func (w *watch) alarm(i record.OutboxInfo) {
	behind := i.Rows > w.cfg.AlarmRows || i.Oldest > w.cfg.AlarmAge
	if behind && !w.behind {
		w.cfg.Hooks.Report(record.Report{
			Kind: record.ReportOutboxBehind, Age: i.Oldest,
			Err: fmt.Errorf("%d events wait, %d bytes, the oldest for %s; the oldest open transaction is %s old",
				i.Rows, i.Bytes, i.Oldest.Round(time.Second), i.Snapshot.Round(time.Second)),
			Hint: "nothing is lost, and it drains by itself once the brokers take events; an old transaction makes the table slow",
		})
	}
	w.behind = behind
}
