package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// env is what every contender gets: the same broker, the same database.
type env struct {
	brokers []string
	db      *pgxpool.Pool
	dsn     string
}

// contender consumes a workload until it is stopped.
type contender interface {
	name() string
	// inboxRows is the query that counts its inbox rows.
	inboxRows() string
	// start begins to consume w as a new consumer group and returns how to stop.
	start(e env, w workload, group string, seen *clock) (stop func(), err error)
}

// race lets the contenders take turns over w, rounds times, and returns each one's rates in records a second.
func race(ctx context.Context, e env, w workload, rounds int, contenders ...contender) (map[string][]float64, error) {
	rates := map[string][]float64{}
	for round := range rounds {
		for _, c := range contenders {
			rate, err := once(ctx, e, w, c)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", c.name(), round+1, err)
			}
			fmt.Printf("  %d partitions, round %d: %-28s %8.0f records/s\n", w.partitions, round+1, c.name(), rate)
			rates[c.name()] = append(rates[c.name()], rate)
		}
	}
	return rates, nil
}

// once measures one run, from the first record's handler to the last inbox row, and verifies its effects.
func once(ctx context.Context, e env, w workload, c contender) (float64, error) {
	if err := reset(ctx, e.db, w.keys); err != nil {
		return 0, err
	}
	if err := forget(ctx, e.db); err != nil {
		return 0, err
	}
	if err := w.service.forget(ctx); err != nil {
		return 0, err
	}
	seen := &clock{}
	stop, err := c.start(e, w, fmt.Sprintf("bench-%d", time.Now().UnixNano()), seen)
	if err != nil {
		return 0, err
	}
	took, err := finish(ctx, e, w, c, seen)
	stop()
	if err != nil {
		return 0, err
	}
	if err := w.service.verify(ctx, w.records); err != nil {
		return 0, err
	}
	return float64(w.records) / took.Seconds(), verify(ctx, e.db, w, c.inboxRows())
}

// finish waits until every healthy record has its inbox row. Asking the database often would slow what is measured, so
// it asks only once the handlers have seen everything.
func finish(ctx context.Context, e env, w workload, c contender, seen *clock) (time.Duration, error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d records handled: %w", seen.n.Load(), w.records, ctx.Err())
		case <-tick.C:
		}
		if err := seen.err(); err != nil {
			return 0, err
		}
		if seen.n.Load() < int64(w.records) {
			continue
		}
		var n int
		if err := e.db.QueryRow(ctx, c.inboxRows()).Scan(&n); err != nil {
			return 0, err
		}
		if n >= w.records-w.poison {
			return time.Since(seen.began), nil
		}
	}
}

// forget empties Headrace's own tables, if they are there yet.
func forget(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, `do $$ begin if to_regclass('headrace.inbox') is not null then truncate headrace.inbox; end if; end $$`)
	return err
}

// compare prints each one's median, as a multiple of the first one's.
func compare(part string, w workload, rates map[string][]float64, field []contender) {
	base := median(rates[field[0].name()])
	fmt.Printf("%s, %d partitions, %d records: %s %.0f/s", part, w.partitions, w.records, field[0].name(), base)
	for _, c := range field[1:] {
		rate := median(rates[c.name()])
		fmt.Printf("; %s %.0f/s: %.1fx", c.name(), rate, rate/base)
	}
	fmt.Println()
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
