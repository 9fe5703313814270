package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/audit"
	"github.com/headrace/headrace/kafka"
)

type auditFlags struct {
	kafka           kafkaFlags
	dsn             dsnFlag
	topic, group    string
	routes          []string
	letters, since  string
	idHeader, field string
	json            bool
	limit           int
}

func newAudit(s streams) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Count what became of each record of a topic, and name those with no outcome or two",
		Long: `Reads a topic, its dead letters and replays, and asks the consumer's database what became of each record, for each route:

  records = effected + duplicate + skipped + dead + parked + pending + forgotten + wrong

  pending    the group has not passed it yet
  forgotten  it is older than the topic's retention, and the inbox has been swept: nobody can tell any more
  wrong      it has no outcome, or two; each is named, and the exit code is 1

It may run beside the consumer: what comes while it looks is not part of it, and whatever looks wrong is looked at twice. It
writes nothing. Memory does not grow with the topic, but by some 60 bytes a dead letter.

It counts what the inbox says, not your own tables. Of a route with the offset store it cannot tell effected from skipped,
finds no duplicates, and cannot see what is lost below the offset: only what its dead letters contradict. A letter that
stands twice, which a crash may leave, is named and counts once.`,
		Example: `  headrace audit --topic orders --group billing
  headrace audit --topic orders --group billing --route charge-order --since 24h --json
  headrace audit --topic orders --group billing --id-field order.id`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false // the important ones first
	fs.StringVarP(&f.topic, "topic", "t", "", "`topic` whose records are counted (required)")
	fs.StringVarP(&f.group, "group", "g", "", "consumer `group` (required)")
	fs.StringSliceVar(&f.routes, "route", nil, "only these `routes`; by default all of the group that have read the topic")
	fs.StringVar(&f.since, "since", "", "only records written since then: an `age` (90m, 2h, 7d) or a time (2026-11-30T03:00:00Z)")
	fs.StringVar(&f.letters, "dead-letter-topic", "", "the routes' dead letter `topic`, by default the topic's name and .dlq")
	fs.StringVar(&f.idHeader, "id-header", "", "the route's Identity is this `header`; by default ce_id, then _watermill_message_uuid")
	fs.StringVar(&f.field, "id-field", "", "the route's Identity is this `field` of a JSON value, as order.id")
	fs.IntVarP(&f.limit, "limit", "n", defaultLimit, "name at most `n` records a route, 0 for all (10,000); with --json all")
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	f.dsn.register(fs, "the consumer's database")
	f.kafka.register(fs)
	return cmd
}

func (f *auditFlags) config(s streams) (cfg audit.Config, err error) {
	for _, required := range []struct{ name, value, example string }{{"--topic", f.topic, "orders"}, {"--group", f.group, "billing"}} {
		if required.value == "" {
			return cfg, usagef("no %s", required.name).fix("add it, as in " + required.name + " " + required.example)
		}
	}
	if f.idHeader != "" && f.field != "" {
		return cfg, usagef("--id-header and --id-field exclude each other").fix("name what the route's Identity asks first; what has no id there is found by its place")
	}
	if f.limit < 0 {
		return cfg, usagef("--limit %d is negative", f.limit).fix("use 0 for all records")
	}
	cfg = audit.Config{
		Topic: f.topic, Group: f.group, Routes: f.routes, Letters: f.letters, Identity: audit.Identity{Header: f.idHeader, Field: f.field},
	}
	told := int64(0)
	cfg.Progress = func(records int64) {
		if n := records / aMillion; n > told {
			told = n
			fmt.Fprintf(s.err, "%d records\n", records)
		}
	}
	if cfg.Since, err = parseTime("--since", f.since, time.Now()); err != nil {
		return cfg, err
	}
	cfg.Client, err = f.kafka.config(s)
	return cfg, err
}

// aMillion records are a matter of seconds: that much is told of.
const aMillion = 1_000_000

// auditJSON is what --json prints. The names are stable: scripts read them.
type auditJSON struct {
	Topic  string          `json:"topic"`
	Group  string          `json:"group"`
	OK     bool            `json:"ok"`
	Routes []*audit.Ledger `json:"routes"`
}

func (f *auditFlags) run(ctx context.Context, s streams) error {
	cfg, err := f.config(s)
	if err != nil {
		return err
	}
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	cfg.Pool = pool
	if err := reach(ctx, cfg.Client); err != nil {
		return err
	}
	ledgers, err := audit.Run(ctx, cfg)
	switch {
	case errors.Is(err, audit.ErrNoRoute):
		return &failure{err: err, hint: "check --group and --route, and --dsn or " + envDSN + ": it is to be the consumer's"}
	case errors.Is(err, kafka.ErrUnknownTopic):
		return &failure{err: err, hint: "check --topic and --brokers"}
	case err != nil:
		return inboxError(err)
	}
	ok := true
	for _, l := range ledgers {
		ok = ok && l.OK()
	}
	if f.json {
		err = writeJSON(s.out, auditJSON{Topic: f.topic, Group: f.group, OK: ok, Routes: ledgers})
	} else {
		err = f.print(s, ledgers)
	}
	if err == nil && !ok {
		err = &failure{err: errReported, hint: "see docs/operations.md, \"Does it add up?\""}
	}
	return err
}

func (f *auditFlags) print(s streams, ledgers []*audit.Ledger) error {
	t := table{header: []string{"RECORDS", "EFFECTED", "DUPLICATE", "SKIPPED", "DEAD", "PARKED", "PENDING", "FORGOTTEN", "WRONG", "ROUTE"}, right: map[string]bool{}}
	for _, name := range t.header[:len(t.header)-1] {
		t.right[name] = true
	}
	for _, l := range ledgers {
		var cells []string
		for _, n := range []int64{l.Records, l.Effected, l.Duplicate, l.Skipped, l.Dead, l.Parked, l.Pending, l.Forgotten, l.Wrong} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		t.add(append(cells, dlq.Escape([]byte(l.Route), maxCell))...)
	}
	if err := t.write(s.out, s.width); err != nil {
		return err
	}
	for _, l := range ledgers {
		f.name(s, l)
		noteLedger(s, l)
	}
	return nil
}

// name tells which records are not as they should be.
func (f *auditFlags) name(s streams, l *audit.Ledger) {
	route := dlq.Escape([]byte(l.Route), maxCell)
	shown := func(list []audit.Finding) []audit.Finding {
		if f.limit > 0 && len(list) > f.limit {
			return list[:f.limit]
		}
		return list
	}
	for _, one := range shown(l.Findings) {
		said := "no outcome"
		if one.Outcomes > 1 {
			said = "two outcomes"
		}
		fmt.Fprintf(s.out, "%s  %s  %s: %s\n", dlq.Escape([]byte(one.Place()), maxCell), route, said, one.What)
	}
	if more := l.Wrong + l.WrongReplays - int64(len(shown(l.Findings))); more > 0 {
		fmt.Fprintf(s.out, "… and %d more of %s\n", more, route)
	}
	for _, one := range shown(l.Notes) {
		fmt.Fprintf(s.err, "note: %s of %s: %s; they count once\n", dlq.Escape([]byte(one.Place()), maxCell), route, one.What)
	}
}

// noteLedger says what cannot be known.
func noteLedger(s streams, l *audit.Ledger) {
	var notes []string
	if l.ByOffset {
		notes = append(notes, "it has the offset store: effected may be skipped, and what is lost below its offset cannot be seen")
	}
	if l.Forgotten > 0 {
		notes = append(notes, plural(l.Forgotten, "record")+" older than the topic's retention, which the swept inbox need not remember: nobody can tell")
	}
	if l.ByPlace > 0 {
		notes = append(notes, plural(l.ByPlace, "record")+" found by their places alone: name the route's Identity with --id-header or --id-field, or its duplicates look lost")
	}
	for _, note := range notes {
		fmt.Fprintf(s.err, "note: %s: %s\n", dlq.Escape([]byte(l.Route), maxCell), strings.TrimSpace(note))
	}
}
