package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// activity is what the database says of a consumer's connections.
type activity struct {
	conns int // the most that were there at once
	open  int // the most transactions that waited for something else than the database, at once; in the end, all
}

const (
	// Of a transaction that is at work, nothing is said here: the machine may be slow.
	watchSQL = `select count(*), count(*) filter (where state like 'idle in transaction%' and clock_timestamp() - state_change > $2)
		from pg_stat_activity where application_name = $1`
	leftSQL = `select count(*) from pg_stat_activity where application_name = $1 and xact_start is not null`
)

// watch looks all the time. The returned function ends it, when the consumer has ended.
func (a *activity) watch(ctx context.Context, dsn, name string, longest time.Duration) (end func() error, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.look(ctx, conn, name, longest) }()
	return func() error {
		stop()
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing was written
		if err := <-ended; err != nil {
			return err
		}
		var left int
		err := conn.QueryRow(context.WithoutCancel(ctx), leftSQL, name).Scan(&left)
		a.open += left
		return err
	}, nil
}

func (a *activity) look(ctx context.Context, conn *pgx.Conn, name string, longest time.Duration) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var conns, open int
		if err := conn.QueryRow(context.WithoutCancel(ctx), watchSQL, name, longest).Scan(&conns, &open); err != nil {
			return err
		}
		a.conns, a.open = max(a.conns, conns), max(a.open, open)
	}
}
