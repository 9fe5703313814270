package dedup

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

// failures are the ways in which a handler fails.
var failures = map[string]Apply{
	"ErrorBeforeSQL": func(context.Context, pgx.Tx, *record.Record) error { return errBoom },
	"ErrorAfterSQL": func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
		return errors.Join(errBoom, effect(ctx, tx, r))
	},
	"Panic": func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
		_ = effect(ctx, tx, r)
		panic("boom")
	},
	"SQLError": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		_, err := tx.Exec(ctx, "select 1 / $1::int", 0)
		return err
	},
	"SwallowedError": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		_, _ = tx.Exec(ctx, "select 1/0")
		return nil
	},
	"SwallowedRowError": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		_ = tx.QueryRow(ctx, "select 1/0").Scan(new(int))
		return nil
	},
	"RowsErr": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		rows, err := tx.Query(ctx, "select 1 / (3 - n) from generate_series(1, 3) n")
		if err != nil {
			return err
		}
		for rows.Next() { // its error is what nobody looks at
		}
		return nil
	},
	"UnencodableArgument": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		_, err := tx.Exec(ctx, "insert into eff (n) values ($1)", "no number")
		return err
	},
	"UnencodableInABatch": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		batch := &pgx.Batch{}
		for range 100 {
			batch.Queue("insert into eff (n) values ($1)", 1)
		}
		batch.Queue("insert into eff (n) values ($1)", "no number")
		return tx.SendBatch(ctx, batch).Close()
	},
	"BatchError": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		batch := &pgx.Batch{}
		batch.Queue("insert into eff (n) values (1)")
		batch.Queue("select 1/0")
		return tx.SendBatch(ctx, batch).Close()
	},
	"OpenTransaction": func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		return effect(ctx, inner, r)
	},
	"UniqueViolation": func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
		_, err := tx.Exec(ctx, "insert into uniq values (1), (1)")
		return err
	},
}

// hold keeps the route's one writer busy: gate closes when it is, and it goes on when release closes.
func (b *workbench) hold(gate, release chan struct{}) {
	o := newOwner()
	r := recAs(o, 1_000_000, "", "holds the writer", "")
	c := newCall(context.Background(), []*record.Record{r}, Apply(func(context.Context, pgx.Tx, *record.Record) error {
		close(gate)
		<-release
		return errBoom
	}))
	b.rt.enqueue(c)
}

// awaitQueue waits until n calls are in line.
func (b *workbench) awaitQueue(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		b.rt.mu.Lock()
		defer b.rt.mu.Unlock()
		return len(b.rt.queue) == n
	}, 30*time.Second, time.Millisecond)
}
