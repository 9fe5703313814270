package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dlq"
)

// noteUnknown says on the side which of the routes or groups that were asked for are unknown, and which there are.
func noteUnknown(s streams, what string, asked, known []string, where string) {
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
	fmt.Fprintf(s.err, "note: %s no %s %s: %s\n", where, what, strings.Join(unknown, ", "), dlq.Escape([]byte(there), 0))
}

// known are the consumer groups and the routes that something knows.
type known struct{ groups, routes []string }

func (k *known) add(group, route string) {
	if group != "" && !slices.Contains(k.groups, group) {
		k.groups = append(k.groups, group)
	}
	if route != "" && !slices.Contains(k.routes, route) {
		k.routes = append(k.routes, route)
	}
}

// note says which of those that were asked for are unknown to what where names.
func (k *known) note(s streams, groups, routes []string, where string) {
	slices.Sort(k.groups)
	slices.Sort(k.routes)
	noteUnknown(s, "group", groups, k.groups, where)
	noteUnknown(s, "route", routes, k.routes, where)
}

// knownTo are those of a consumer's database.
func knownTo(ctx context.Context, db dlq.Querier) (*known, error) {
	rows, err := db.Query(ctx, "select consumer_group, route from headrace.consumers")
	if err != nil {
		return nil, err
	}
	k := &known{}
	var group, route string
	_, err = pgx.ForEachRow(rows, []any{&group, &route}, func() error {
		k.add(group, route)
		return nil
	})
	return k, err
}

// knownIn are those whose letters a topic has.
func knownIn(ctx context.Context, cfg dlq.ReadConfig) (*known, error) {
	cfg.Filter = dlq.Filter{}
	k := &known{}
	_, err := dlq.Read(ctx, cfg, func(e *dlq.Entry) error {
		k.add(e.Envelope.Group, e.Envelope.Route)
		return nil
	})
	return k, err
}
