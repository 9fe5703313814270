package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/parking"
)

type parkedShowFlags struct {
	parkedFlags

	raw, json, pretty bool
}

func newParkedShow(s streams) *cobra.Command {
	var f parkedShowFlags
	cmd := &cobra.Command{
		Use:   "show [topic/partition/offset]",
		Short: "Show one parked record whole",
		Long: `Shows a parked record: for which route, since when, when it is tried again, what each of its rounds ended with, and the
record with its headers, key and value. Name it by where it was read, as ls shows it under RECORD, or by any filter that
leaves one.

What a producer wrote is escaped, headers and values that look like secrets are not printed. --raw writes the value's
bytes as they are, to a pipe or a file only.`,
		Example: `  headrace parked show orders/3/120
  headrace parked show orders/3/120 --route charge-order --json | jq .history
  headrace parked show orders/3/120 --raw > value.bin`,
		Args: onePlace,
		RunE: func(cmd *cobra.Command, args []string) error { return f.show(cmd.Context(), s, args) },
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.raw, "raw", false, "write the value's bytes and nothing else; not to a terminal")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&f.pretty, "pretty", false, "indent a JSON value, as on a terminal")
	f.finish(cmd)
	return cmd
}

func (f *parkedShowFlags) show(ctx context.Context, s streams, args []string) error {
	if err := rawFits(s, f.raw, f.json); err != nil {
		return err
	}
	filter, err := f.filter(args)
	if err != nil {
		return err
	}
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	w, err := f.only(ctx, pool, filter)
	switch {
	case err != nil:
		return err
	case f.json:
		return writeJSON(s.out, parkedWholeToJSON(w))
	case f.raw && w.Err != nil:
		return &failure{err: w.Err, hint: "the row stays as it is, for a build that can read it"}
	case f.raw:
		_, err := s.out.Write(w.Record.Value)
		return err
	}
	return f.print(s, w)
}

// rawFits refuses --raw where it would do harm.
func rawFits(s streams, raw, asJSON bool) error {
	switch {
	case raw && asJSON:
		return usagef("--raw and --json exclude each other").fix("leave one of them out")
	case raw && s.outTerminal:
		return usagef("--raw does not write to a terminal: the bytes could take it over").fix("redirect it, as in --raw > value.bin")
	}
	return nil
}

// only is the one record that matches.
func (f *parkedShowFlags) only(ctx context.Context, pool *pgxpool.Pool, filter parking.Filter) (*parking.Waiting, error) {
	var found []*parking.Waiting
	err := parking.ListRecords(ctx, pool, filter, 2, func(w *parking.Waiting) error {
		found = append(found, w)
		return nil
	})
	switch {
	case err != nil:
		return nil, parkedError(err)
	case len(found) > 1:
		return nil, usagef("more than one parked record matches: %s of %s, %s of %s, …", atOf(found[0]), routeOf(found[0]), atOf(found[1]), routeOf(found[1])).
			fix("name one by its place, and its route if two have it, as in 'headrace parked show " + quoted(found[0].At().String()) + " --route " + quoted(found[0].Route) + "'")
	case len(found) == 0:
		return nil, &failure{
			err:  errors.New("nothing that is parked matches"),
			hint: "list what is there with 'headrace parked ls'; what was dealt with is parked no more",
		}
	}
	return found[0], nil
}

func (f *parkedShowFlags) print(s streams, w *parking.Waiting) error {
	var out strings.Builder
	writeWaiting(&out, w)
	writeRounds(&out, w.History)
	if w.Record != nil {
		writeHeaders(&out, w.Record.Headers)
		writeBytes(&out, "key", w.Record.Key, "none", false)
		writeBytes(&out, "value", w.Record.Value, "none: a tombstone", f.pretty || s.outTerminal)
	}
	_, err := io.WriteString(s.out, out.String())
	return err
}

func writeWaiting(out io.Writer, w *parking.Waiting) {
	line := lineEach(out)
	line("record", w.At().String())
	if r := w.Record; r != nil {
		line("  timestamp", momentOrNone(r.Timestamp))
		line("id", r.Identity.ID)
	} else {
		line("unreadable", w.Err.Error())
	}
	line("group", w.Group)
	line("route", w.Route)
	line("state", string(w.State))
	line("  means", stateMeans[w.State])
	line("parked", momentOrNone(w.ParkedAt))
	if w.State == parking.StateBehind {
		return
	}
	line("due", momentOrNone(w.Due))
	line("round", numberCell(w.Round))
	line("deaths", numberCell(w.Deaths))
}

// stateMeans are the words of the help of ls.
var stateMeans = map[parking.State]string{
	parking.StateWaiting: "it is tried again when it is due",
	parking.StateDue:     "its time has come, and nobody has begun: a dependency holds the route, or no consumer runs",
	parking.StateRunning: "a process has it in hand; due is when its lease ends",
	parking.StateHeld:    "a record before it is dead, and the route's policy keeps what is behind it until you retry it",
	parking.StateBehind:  "another record of its key is before it",
}

// writeRounds writes a line a round.
func writeRounds(out io.Writer, h parking.History) {
	fmt.Fprintf(out, "\nrounds (%d)\n", len(h))
	for _, f := range h {
		fmt.Fprintf(out, "  %s  %s after %s: %s\n", momentOrNone(f.At), dlq.Escape([]byte(f.Class), maxCell),
			plural(int64(f.Attempts), "attempt"), dlq.Preview([]byte(f.Message), maxShown))
	}
}
