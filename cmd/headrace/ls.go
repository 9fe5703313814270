package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
)

const (
	// maxCell and maxKey bound what a letter may say in a table's cell.
	maxCell = 200
	maxKey  = 24
)

type listFlags struct {
	lettersFlags
	state stateFlags
	listing
}

func newList(s streams) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List dead letters, the newest last",
		Long: `Lists the letters that stand in a dead letter topic when it begins, the newest failure last, and counts all that
match by reason. A record is listed once, by its latest letter. --state asks the database what became of it:

  dead       nothing yet
  effected   a replay has had its effect
  skipped    a replay was skipped by its handler
  duplicate  it could not be read, and when a replay could, another record with its id was dealt with, or it was itself
  unknown    the database does not know it: it is another consumer's, the row's retention is over, or the letter is
             another system's, which names no identity

LETTER is where the letter stands, ORIGIN where its record was first read; --at takes both.`,
		Example: `  headrace dlq ls --brokers kafka:9092 --topic orders.dlq
  headrace dlq ls --topic orders.dlq --reason exhausted,panic --since 2h
  headrace dlq ls --topic orders.dlq --route charge-order --state
  headrace dlq ls --topic orders.dlq --json | jq -r .fingerprint | sort | uniq -c`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.bound(cmd.Flags(), "letters"); err != nil {
				return err
			}
			return f.list(cmd.Context(), s)
		},
	}
	f.register(cmd)
	f.registerListing(cmd.Flags(), "show the newest `n` letters, 0 for all")
	f.state.register(cmd.Flags())
	f.finish(cmd)
	return cmd
}

func (f *listFlags) list(ctx context.Context, s streams) error {
	cfg, err := f.read(s, "", f.now)
	if err != nil {
		return err
	}
	if err := reach(ctx, cfg.Client); err != nil {
		return err
	}
	counts, rows, snapshot, err := f.collect(ctx, cfg)
	if err != nil {
		return topicError(f.topic, err)
	}
	if err := f.state.fill(ctx, s, rows); err != nil {
		return err
	}
	if f.json {
		return printJSON(s, rows)
	}
	if err := printTable(s, rows); err != nil {
		return err
	}
	// The sum belongs to the table: who redirects the one wants the other.
	out := s.out
	if len(rows) == 0 {
		out = s.err
	}
	fmt.Fprintln(out, footer(f.topic, counts, rows, snapshot))
	f.noteStrange(s, snapshot)
	if len(rows) > 0 || len(f.filter.routes)+len(f.filter.groups) == 0 {
		return nil
	}
	known, err := knownIn(ctx, cfg)
	if err != nil {
		return topicError(f.topic, err)
	}
	known.note(s, f.filter.groups, f.filter.routes, quoted(f.topic)+" has letters of")
	return nil
}

func (f *lettersFlags) now() (dlq.Filter, error) { return f.filter.filter(time.Now()) }

// collect reads the letters and keeps the newest.
func (f *listFlags) collect(ctx context.Context, cfg dlq.ReadConfig) (tally, []row, dlq.Snapshot, error) {
	counts := tally{}
	var rows []row
	snapshot, err := dlq.Read(ctx, cfg, func(e *dlq.Entry) error {
		counts[why(e)]++
		rows = append(rows, newRow(e))
		if f.limit > 0 && len(rows) >= 2*f.limit+page {
			rows = newest(rows, f.limit)
		}
		return nil
	})
	return counts, newest(rows, f.limit), snapshot, err
}

func printJSON(s streams, rows []row) error {
	for _, r := range rows {
		if err := writeJSON(s.out, toJSON(r)); err != nil {
			return err
		}
	}
	return nil
}

func printTable(s streams, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	t := table{
		header: []string{"LETTER", "ORIGIN", "FAILED", "REASON", "ROUTE", "TRIES", "REPLAYS", "STATE", "KEY", "ERROR"},
		right:  map[string]bool{"TRIES": true, "REPLAYS": true},
	}
	_, one := onlyGroup(rows)
	for _, r := range rows {
		env := r.e.Envelope
		if one {
			env.Group = ""
		}
		t.add(
			letterCell(r.e), originCell(env.Origin), moment(r.e.Failed()), why(r.e), routeCell(env),
			numberCell(env.Attempts), numberCell(env.Replays), string(r.outcome),
			cut(dlq.Escape(r.e.Key, maxCell), maxKey), dlq.Preview([]byte(env.Message), maxMessage),
		)
	}
	return t.compact().write(s.out, s.width)
}

// onlyGroup is the consumer group of all rows, if they have one: there is no need to repeat it in each.
func onlyGroup(rows []row) (group string, one bool) {
	group = rows[0].e.Envelope.Group
	for _, r := range rows {
		if r.e.Envelope.Group != group {
			return "", false
		}
	}
	return group, true
}

// maxMessage is as much of an error as the widest terminal shows.
const maxMessage = 1000

func letterCell(e *dlq.Entry) string { return fmt.Sprintf("%d/%d", e.Partition, e.Offset) }

func originCell(c dlq.Coordinates) string { return dlq.Escape([]byte(c.String()), maxCell) }

// routeCell is for whom the record is dead: a topic may hold the letters of several groups.
func routeCell(env dlq.Envelope) string {
	if env.Group == "" {
		return dlq.Escape([]byte(env.Route), maxCell)
	}
	return dlq.Escape([]byte(env.Group+"/"+env.Route), maxCell)
}

// numberCell leaves out what is nothing, so that what is something is seen.
func numberCell(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// footer counts what matched, and says what the table does not.
func footer(topic string, counts tally, rows []row, snapshot dlq.Snapshot) string {
	n := total(counts)
	if n == 0 {
		return noneMatches(topic, snapshot)
	}
	line := fmt.Sprintf("%s: %s", plural(n, "letter"), counts)
	if group, one := onlyGroup(rows); one && group != "" {
		line += "; consumer group " + dlq.Escape([]byte(group), maxCell)
	}
	for _, r := range rows {
		if r.e.Later != nil { // it was named by its place: there are few
			line += fmt.Sprintf("; %s is superseded by %d/%d", letterCell(r.e), r.e.Later.Partition, r.e.Later.Offset)
		}
	}
	if int64(len(rows)) < n {
		line += fmt.Sprintf("; the newest %d are shown, --limit 0 shows all", len(rows))
	}
	return line
}

func noneMatches(topic string, snapshot dlq.Snapshot) string {
	return fmt.Sprintf("no letter of %s matches, of %s", topic, plural(snapshot.Records-snapshot.Repeated, "letter"))
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
