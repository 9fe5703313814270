package dedup

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// migrated is a table under a handler's statement, and what a migration makes of it beside the running consumer.
type migrated struct {
	table, sql string
	migration  string
	before     string // the argument
	after      string // what no description from before takes
}

var migratedTables = map[string]migrated{
	"AColumnMore": {
		table: "create table own (a int)", sql: "select *, $1::text from own",
		migration: "alter table own add column b int; insert into own values (1, 2)", before: "x", after: "y",
	},
	"AnotherType": {
		table: "create table own (a text)", sql: "insert into own values ($1)",
		migration: "alter table own alter column a type int using a::int", before: "1", after: "2",
	},
	"AnotherTypeOfAValueThatTheOldOneHasNot": {
		table: "create table own (a int)", sql: "insert into own values ($1)",
		migration: "alter table own alter column a type text", before: "1", after: "two",
	},
}

// argument is what record r inserts.
func (m migrated) argument(r *record.Record) string {
	if r.Offset >= 1000 {
		return m.after
	}
	return m.before
}

// works are the ways to run m.sql beside an effect.
func (m migrated) works() map[string]Work {
	return map[string]Work{
		"executed": Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if _, err := tx.Exec(ctx, m.sql, m.argument(r)); err != nil {
				return err
			}
			return effect(ctx, tx, r)
		}),
		"executed in a savepoint": Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			rows, err := inner.Query(ctx, m.sql, m.argument(r))
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			if err != nil {
				return errors.Join(inner.Rollback(ctx), err)
			}
			return errors.Join(effect(ctx, inner, r), inner.Commit(ctx))
		}),
		"executed in a pgx.Batch": Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			q := &pgx.Batch{}
			q.Queue("select 1")
			q.Queue(m.sql, m.argument(r))
			if err := tx.SendBatch(ctx, q).Close(); err != nil {
				return err
			}
			return effect(ctx, tx, r)
		}),
		"queued": Queue(func(ctx context.Context, q *pgx.Batch, r *record.Record) error {
			q.Queue(m.sql, m.argument(r))
			return queueEffect(ctx, q, r)
		}),
		"grouped": Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			for _, r := range rs {
				if _, err := tx.Exec(ctx, m.sql, m.argument(r)); err != nil {
					return err
				}
			}
			return batchEffect(ctx, tx, rs)
		}),
	}
}

func TestStale(t *testing.T) {
	t.Parallel()
	eachStore(t, testStale)
}

func testStale(t *testing.T) {
	t.Parallel()

	for name, m := range migratedTables {
		for kind, work := range m.works() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{route: RouteConfig{Writers: 3}})
				b.exec(m.table)
				if b.groupsOf(5); kind == "grouped" {
					b.groupsOf(1) // in company it would be found again in halves
				}
				b.runWork(recsFrom(newOwner(), 0, 200), work)
				b.exec(m.migration)
				rs := recsFrom(newOwner(), 1000, 60)
				b.runWork(rs, work)
				requireOutcomes(t, record.Effected, rs...)
				b.requireNobodyCharged()
				b.requireLedger(260)
			})
		}
	}

	t.Run("StatementThatWasPreparedByName", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{dsn: pgtest.DSN(t, migrations.Up, schema)})
		b.in.Close()
		b = b.preparing("select * from acc where id = $1")
		work := Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if _, err := tx.Exec(ctx, "read", r.Offset); err != nil {
				return err
			}
			return effect(ctx, tx, r)
		})
		b.runWork(recsFrom(newOwner(), 0, 50), work)
		b.exec("alter table acc add column more int")
		rs := recsFrom(newOwner(), 1000, 50)
		b.runWork(rs, work)
		requireOutcomes(t, record.Effected, rs...)
		b.requireNobodyCharged()
		b.requireLedger(100)
	})

	t.Run("TablesOfTheInboxItself", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		o := newOwner()
		b.run(recsFrom(o, 0, 20), effect)
		b.run(recsFrom(newOwner(), 0, 20), effect) // asks
		b.exec(`alter table headrace.inbox alter column state type int; alter table headrace.offsets alter column epoch type int`)
		rs := recsFrom(newOwner(), 0, 40)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireNobodyCharged()
		b.requireLedger(40)
	})

	for kind, work := range (migrated{sql: "select $1::text::int", before: "1", after: "no number"}).works() {
		t.Run("BadRecordIsChargedOnceAndLeavesTheConnections/"+kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{route: RouteConfig{Writers: 1}})
			b.run(recsFrom(newOwner(), 0, 10), effect)
			pids := b.backends()
			rs := append(recsFrom(newOwner(), 100, 5), recsFrom(newOwner(), 1000, 1)...)
			b.runUntilCharged(rs, work)
			require.True(t, charged(rs[5]))
			requireOutcomes(t, record.Effected, rs[:5]...)
			require.Equal(t, pids, b.backends())
			b.requireLedger(15)
		})
	}
}

// recsFrom makes n records, the first with number from.
func recsFrom(o *owner, from, n int) []*record.Record {
	rs := make([]*record.Record, n)
	for i := range rs {
		rs[i] = rec(o, from+i, "")
	}
	return rs
}

func (b *workbench) requireNobodyCharged() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for class, n := range b.attempts {
		require.Empty(b.t, class, "%d attempts", n)
	}
	require.Empty(b.t, b.reports)
}

// backends are the processes of the inbox's connections.
func (b *workbench) backends() (pids string) {
	var all []string
	for _, c := range b.in.pool.AcquireAllIdle(context.Background()) {
		all = append(all, strconv.Itoa(int(c.Conn().PgConn().PID())))
		c.Release()
	}
	return strings.Join(all, " ")
}

// preparing is another bench on b's database, whose connections have prepared sql as "read".
func (b *workbench) preparing(sql string) *workbench {
	b.t.Helper()
	cfg, err := pgxpool.ParseConfig(b.dsn)
	require.NoError(b.t, err)
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Prepare(ctx, "read", sql)
		return err
	}
	pool, err := pgxpool.NewWithConfig(b.t.Context(), cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(pool.Close)
	in, err := Open(b.t.Context(), pool, b.in.cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(in.Close)
	rt, err := in.Route(b.t.Context(), b.rt.cfg)
	require.NoError(b.t, err)
	b.in, b.rt = in, rt
	return b
}
