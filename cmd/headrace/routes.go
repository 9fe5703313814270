package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dlq"
)

// noteRoutes says on the side which of the routes that were asked for are unknown, and which there are.
func noteRoutes(s streams, asked, known []string, where string) {
	var unknown []string
	for _, name := range asked {
		if !slices.Contains(known, name) {
			unknown = append(unknown, quoted(name))
		}
	}
	if len(unknown) == 0 {
		return
	}
	there := "there is none"
	if len(known) > 0 {
		there = "there are " + strings.Join(known, ", ")
	}
	fmt.Fprintf(s.err, "note: %s no route %s: %s\n", where, strings.Join(unknown, ", "), dlq.Escape([]byte(there), 0))
}

// routesOf are the routes that a consumer's database knows.
func routesOf(ctx context.Context, db dlq.Querier) ([]string, error) {
	rows, err := db.Query(ctx, "select distinct route from headrace.consumers order by 1")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// routesIn are the routes whose letters a topic has.
func routesIn(ctx context.Context, cfg dlq.ReadConfig) (routes []string, err error) {
	cfg.Filter = dlq.Filter{}
	_, err = dlq.Read(ctx, cfg, func(e *dlq.Entry) error {
		if name := e.Envelope.Route; name != "" && !slices.Contains(routes, name) {
			routes = append(routes, name)
		}
		return nil
	})
	slices.Sort(routes)
	return routes, err
}
