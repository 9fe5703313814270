package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
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
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	if err := askOutcomes(ctx, pool, rows); err != nil {
		return err
	}
	return noteUnknownRoutes(ctx, s, pool, rows)
}

// noteUnknownRoutes says once for which routes this is not the database.
func noteUnknownRoutes(ctx context.Context, s streams, db dlq.Querier, rows []row) error {
	var of []*dlq.Entry
	seen := map[[2]string]bool{}
	for _, r := range rows {
		route := [2]string{r.e.Envelope.Group, r.e.Envelope.Route}
		if r.outcome == dlq.OutcomeUnknown && !seen[route] {
			seen[route], of = true, append(of, r.e)
		}
	}
	names, err := dlq.UnknownRoutes(ctx, db, of)
	if err != nil || len(names) == 0 {
		return inboxError(err)
	}
	const most = 5
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	fmt.Fprintf(s.err, "note: this database has never had a route %s%s, so what became of its records is unknown: is it the consumer's?\n",
		dlq.Escape([]byte(strings.Join(names, ", ")), 0), more)
	return nil
}

// inboxError adds what to do about a database without an inbox.
func inboxError(err error) error {
	const noSchema, noTable = "3F000", "42P01"
	var server *pgconn.PgError
	if errors.As(err, &server) && (server.Code == noSchema || server.Code == noTable) {
		return &failure{err: errors.New("the database has no inbox: " + server.Message), hint: "check --dsn or " + envDSN + ": it is to be the consumer's"}
	}
	return err
}

func askOutcomes(ctx context.Context, db dlq.Querier, rows []row) error {
	for chunk := range slices.Chunk(rows, page) {
		entries := make([]*dlq.Entry, len(chunk))
		for i, r := range chunk {
			entries[i] = r.e
		}
		outcomes, err := dlq.Outcomes(ctx, db, entries)
		if err != nil {
			return inboxError(err)
		}
		for i := range chunk {
			chunk[i].outcome = outcomes[i]
		}
	}
	return nil
}
