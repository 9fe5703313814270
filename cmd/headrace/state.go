package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/headrace/headrace/dlq"
)

// page is for how many letters the database is asked at once.
const page = 500

// stateFlags ask the database what became of letters' records.
type stateFlags struct {
	state bool
	dsn   dsnFlag
}

func (f *stateFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.state, "state", false, "ask the consumer's database what became of each record")
	f.dsn.register(fs, "the consumer's database (implies --state)")
}

// fill asks for the rows' outcomes. A DATABASE_URL alone is no wish to be connected: many shells have one set.
func (f *stateFlags) fill(ctx context.Context, s streams, rows []row) error {
	if !f.state && f.dsn.value == "" {
		return nil
	}
	pool, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer pool.Close()
	return askOutcomes(ctx, pool, rows)
}

func askOutcomes(ctx context.Context, db dlq.Querier, rows []row) error {
	for chunk := range slices.Chunk(rows, page) {
		entries := make([]*dlq.Entry, len(chunk))
		for i, r := range chunk {
			entries[i] = r.e
		}
		outcomes, err := dlq.Outcomes(ctx, db, entries)
		if err != nil {
			return fmt.Errorf("ask the inbox: %w", err)
		}
		for i := range chunk {
			chunk[i].outcome = outcomes[i]
		}
	}
	return nil
}
