package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
)

// kind is how the scripted routes write. The zero value is that of a Route.
type kind string

const (
	applies kind = "Apply"
	queues  kind = "Queue"
	batches kind = "Batch"
)

// way is how a route writes, and what it remembers by.
type way struct {
	kind  kind
	store dedup.Store
}

var stores = map[string]dedup.Store{"Inbox": dedup.ByID, "OffsetStore": dedup.ByOffset}

// eachStore runs a test with the inbox and with the offset store.
func eachStore(t *testing.T, name string, run func(t *testing.T, store dedup.Store)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		for name, store := range stores {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, store)
			})
		}
	})
}

// eachWay runs a test with each kind of route on each store: what a crash or a lost connection meets half done is
// another thing in each of them.
func eachWay(t *testing.T, name string, run func(t *testing.T, as way)) {
	t.Helper()
	eachStore(t, name, func(t *testing.T, store dedup.Store) {
		for _, k := range []kind{applies, queues, batches} {
			t.Run(string(k), func(t *testing.T) {
				t.Parallel()
				run(t, way{k, store})
			})
		}
	})
}

// scriptedRoute is one that does what the records say.
func (s setup) scriptedRoute(name string) consumer.AnyRoute {
	switch s.Kind {
	case queues:
		return consumer.QueueRoute[order]{
			Name: name, Topic: s.Topic, Options: s.options(),
			Queue: func(b *pgx.Batch, e consumer.Event[order]) error { return queue(b, name, e) },
		}
	case batches:
		return consumer.BatchRoute[order]{
			Name: name, Topic: s.Topic, Options: s.options(),
			Apply: func(ctx context.Context, tx pgx.Tx, es []consumer.Event[order]) error {
				return actAll(ctx, tx, name, es)
			},
		}
	case applies:
	}
	return s.route(name, func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		return act(ctx, tx, name, e)
	})
}

// act is what a scripted route does with a record.
func act(ctx context.Context, tx pgx.Tx, route string, e consumer.Event[order]) error {
	if err := write(ctx, tx, route, e); err != nil {
		return err
	}
	if err := verdict(e.Data, e.Attempt); err != nil {
		return err
	}
	if broken := untilRepaired(e.Data); broken != nil {
		return isRepaired(tx.QueryRow(ctx, repairedSQL, route), broken)
	}
	if sql, args := statement(e.Data); sql != "" {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
	return nil
}

// queue is act for a route that queues.
func queue(b *pgx.Batch, route string, e consumer.Event[order]) error {
	b.Queue(effectSQL, effectOf(route, e)...)
	if broken := untilRepaired(e.Data); broken != nil {
		b.Queue(repairedSQL, route).QueryRow(func(row pgx.Row) error { return isRepaired(row, broken) })
	}
	if sql, args := statement(e.Data); sql != "" {
		b.Queue(sql, args...)
	}
	return verdict(e.Data, e.Attempt)
}

// actAll is act for a route that gets a whole group. Of a statement that fails it does not say whose it was.
func actAll(ctx context.Context, tx pgx.Tx, route string, es []consumer.Event[order]) error {
	var repaired bool
	if err := tx.QueryRow(ctx, repairedSQL, route).Scan(&repaired); err != nil {
		return err
	}
	b, failed := &pgx.Batch{}, fault.Members{}
	for i, e := range es {
		b.Queue(effectSQL, effectOf(route, e)...)
		if sql, args := statement(e.Data); sql != "" {
			b.Queue(sql, args...)
		}
		failed[i] = verdict(e.Data, e.Attempt)
		if broken := untilRepaired(e.Data); broken != nil && !repaired {
			failed[i] = broken
		}
	}
	if len(failed.Failed()) > 0 {
		return failed
	}
	return tx.SendBatch(ctx, b).Close()
}

// verdict is what becomes of a record without asking the database.
func verdict(o order, attempt int) error {
	switch o.Do {
	case "skip":
		return fault.Skip("cancelled")
	case "fail":
		return fmt.Errorf("no such account %d", o.N)
	case "flaky": // the first N attempts
		if attempt <= o.N {
			return fault.Transient(errors.New("not now"))
		}
	case "panic":
		panic("boom")
	case "exit": // as a library that gives up, or a lack of memory
		os.Exit(17)
	}
	return nil
}

// statement is what the record has executed beside its effect, "" for nothing.
func statement(o order) (sql string, args []any) {
	switch o.Do {
	case "slow": // N milliseconds
		return `select pg_sleep($1::int / 1000.0)`, []any{o.N}
	case "constraint":
		return `insert into effects (off) values ('x'::text::bigint)`, nil
	}
	return "", nil
}

// repairedSQL asks whether a route is repaired.
const repairedSQL = `select exists (select from repaired where route = $1)`

// later is longer than a test waits for an attempt.
const later = time.Minute

// untilRepaired is what a record fails of until its route is repaired, nil for one that does not.
func untilRepaired(o order) error {
	switch o.Do {
	case "broken":
		return errors.New("not built yet")
	case "partner":
		return fault.Transient(errors.New("the partner does not answer"))
	case "later":
		return fault.RetryAfter(errors.New("not now"), later)
	}
	return nil
}

func isRepaired(row pgx.Row, broken error) error {
	var repaired bool
	if err := row.Scan(&repaired); err != nil || repaired {
		return err
	}
	return broken
}

const effectSQL = `insert into effects (route, topic, part, off, id, key, attempt) values ($1, $2, $3, $4, $5, $6, $7)`

func effectOf[T any](route string, e consumer.Event[T]) []any {
	return []any{route, e.Topic, e.Partition, e.Offset, e.ID, string(e.Key), e.Attempt}
}

// write is the effect.
func write[T any](ctx context.Context, tx pgx.Tx, route string, e consumer.Event[T]) error {
	_, err := tx.Exec(ctx, effectSQL, effectOf(route, e)...)
	return err
}
