package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/parking"
)

type parkedListFlags struct {
	parkedFlags
	listing

	all bool
}

func newParkedList(s streams) *cobra.Command {
	var f parkedListFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the keys that wait, those that are parked for longest first",
		Long: `Lists a line for each key of which records are parked: the record that is to be tried next, in which round, when, what it
failed of last, and how many stand behind it. A sum of each route follows. --all lists those behind too.

  waiting  it is tried again when it is DUE
  due      its time has come, and nobody has begun: a dependency holds the route, or no consumer runs
  running  a process has it in hand; DUE is when its lease ends
  held     a record before it is dead, and the route's policy keeps what is behind it until you 'retry' it
  behind   another record of its key is before it (with --all)`,
		Example: `  headrace parked ls
  headrace parked ls --group billing --route charge-order --since 2h
  headrace parked ls --key customer-4711 --all
  headrace parked ls --json | jq -r .error | sort | uniq -c`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.bound(cmd.Flags(), "lines"); err != nil {
				return err
			}
			return f.list(cmd.Context(), s)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVarP(&f.all, "all", "a", false, "list records that stand behind others too")
	f.registerListing(cmd.Flags(), "show `n` lines, 0 for all")
	f.finish(cmd)
	return cmd
}

func (f *parkedListFlags) list(ctx context.Context, s streams) error {
	filter, err := f.filter(nil)
	if err != nil {
		return err
	}
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	list := parking.ListHeads
	if f.all {
		list = parking.ListRecords
	}
	if f.json {
		return parkedError(list(ctx, pool, filter, f.limit, func(w *parking.Waiting) error { return writeJSON(s.out, parkedToJSON(w)) }))
	}
	var found []*parking.Waiting
	err = list(ctx, pool, filter, f.limit, func(w *parking.Waiting) error {
		found = append(found, slim(w))
		return nil
	})
	if err != nil {
		return parkedError(err)
	}
	sums, err := parking.Sums(ctx, pool, f.groups, f.routes)
	if err != nil {
		return parkedError(err)
	}
	if len(found) == 0 {
		fmt.Fprintln(s.err, strings.Join(append([]string{"nothing that is parked matches"}, sumLines(sums)...), "\n"))
		known, err := knownTo(ctx, pool)
		if err != nil {
			return parkedError(err)
		}
		known.note(s, f.groups, f.routes, "this database knows")
		return nil
	}
	if err := parkedTable(found).write(s.out, s.width); err != nil {
		return err
	}
	for _, line := range sumLines(sums) {
		fmt.Fprintln(s.out, line)
	}
	if len(found) == f.limit {
		fmt.Fprintf(s.err, "note: the first %d are shown, --limit 0 shows all\n", f.limit)
	}
	return nil
}

// slim leaves a record's value and headers in the table.
func slim(w *parking.Waiting) *parking.Waiting {
	if w.Record != nil {
		w.Record.Value, w.Record.Headers = nil, nil
	}
	return w
}

func parkedTable(list []*parking.Waiting) *table {
	t := table{
		header: []string{"RECORD", "ROUTE", "STATE", "ROUND", "DUE", "SINCE", "BEHIND", "KEY", "ERROR"},
		right:  map[string]bool{"ROUND": true, "BEHIND": true},
	}
	for _, w := range list {
		due := ""
		if w.State != parking.StateBehind && !w.Due.IsZero() {
			due = moment(w.Due)
		}
		t.add(
			atOf(w), routeOf(w), string(w.State), triesOf(w), due, moment(w.ParkedAt),
			numberCell(int(w.Behind)), cut(keyOf(w), maxKey), failedOf(w),
		)
	}
	return t.compact()
}

// sumLines are a line a route.
func sumLines(sums []parking.Sum) (list []string) {
	for _, s := range sums {
		var states []string
		for _, c := range []struct {
			n    int64
			name parking.State
		}{{s.Waiting, parking.StateWaiting}, {s.Due, parking.StateDue}, {s.Running, parking.StateRunning}, {s.Held, parking.StateHeld}} {
			if c.n > 0 {
				states = append(states, strconv.FormatInt(c.n, 10)+" "+string(c.name))
			}
		}
		line := fmt.Sprintf("%s: %s in %s (%s), the oldest since %s",
			dlq.Escape([]byte(s.Group+"/"+s.Route), maxCell), plural(s.Records, "record"), plural(s.Keys, "key"), strings.Join(states, ", "), moment(s.Oldest))
		if !s.Next.IsZero() {
			line += ", the next due " + moment(s.Next)
		}
		list = append(list, line)
	}
	return list
}
