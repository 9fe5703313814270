package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/parking"
)

type parkedRetryFlags struct {
	parkedFlags

	dryRun, yes bool
}

func newParkedRetry(s streams) *cobra.Command {
	var f parkedRetryFlags
	cmd := &cobra.Command{
		Use:   "retry [topic/partition/offset]…",
		Short: "Make keys due now",
		Long: `Makes the keys of the records that match due now: the next process of the consumer that has room tries the first record of
each, and those behind it follow. It spends no round; a record in its last round that fails now is dead. What is held runs
again. A record that stands behind others makes its key due, and waits for its turn there. A key that somebody works on is
left alone.

More than one key wants a yes, from a terminal or by --yes; so does no filter at all, which is everything.`,
		Example: `  headrace parked retry orders/3/120
  headrace parked retry --key customer-4711
  headrace parked retry --route charge-order --since 2h --dry-run
  headrace parked retry --route charge-order --since 2h --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.retry(cmd.Context(), s, args) },
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "change nothing, list what would be made due")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	f.finish(cmd)
	return cmd
}

func (f *parkedRetryFlags) retry(ctx context.Context, s streams, args []string) error {
	filter, err := f.filter(args)
	if err != nil {
		return err
	}
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	lines, records, err := f.lines(ctx, s, pool, filter)
	switch {
	case err != nil:
		return err
	case f.dryRun:
		fmt.Fprintf(s.out, "would make %s due: --dry-run changed nothing\n", plural(int64(len(lines)), "key"))
		return nil
	}
	if err := f.confirm(ctx, s, len(lines), records); err != nil {
		return err
	}
	due, err := parking.MakeDue(ctx, pool, lines)
	if err != nil {
		return &failure{err: fmt.Errorf("%s due, then: %w", plural(int64(len(due)), "key"), err), hint: "running the command again is safe"}
	}
	fmt.Fprintf(s.out, "due now: %s\n", plural(int64(len(due)), "key"))
	if left := len(lines) - len(due); left > 0 {
		fmt.Fprintf(s.out, "left: %s, which somebody works on, or which are parked no more\n", plural(int64(left), "key"))
	}
	return nil
}

// lines are those of the records that match: of their heads, or of those that are named by their places, whoever is
// before them. A dry run lists them.
func (f *parkedRetryFlags) lines(ctx context.Context, s streams, pool *pgxpool.Pool, filter parking.Filter) (lines []parking.LineID, records int64, err error) {
	list := parking.ListHeads
	if len(filter.At) > 0 {
		list = parking.ListRecords
	}
	seen := map[parking.LineID]bool{}
	err = list(ctx, pool, filter, 0, func(w *parking.Waiting) error {
		records += 1 + w.Behind
		if f.dryRun {
			fmt.Fprintf(s.out, "retry  %s  of %s, %s\n", atOf(w), routeOf(w), w.State)
		}
		if !seen[w.Line] {
			seen[w.Line] = true
			lines = append(lines, w.Line)
		}
		return nil
	})
	if err != nil {
		return nil, 0, parkedError(err)
	}
	if len(lines) == 0 {
		return nil, 0, errNothingParked(len(filter.At))
	}
	return lines, records, nil
}

// errNothingParked: whoever named a record is told that it is not there.
func errNothingParked(named int) error {
	said := "nothing that is parked matches"
	if named > 0 {
		said = "no such record is parked"
	}
	return &failure{err: fmt.Errorf("nothing was changed: %s", said), hint: "list what is there with 'headrace parked ls'; what was dealt with is parked no more"}
}

func (f *parkedRetryFlags) confirm(ctx context.Context, s streams, keys int, records int64) error {
	switch {
	case f.yes || keys == 1:
		return nil
	case !s.inTerminal:
		return usagef("%d keys match, with %s, and there is no terminal to ask on", keys, plural(records, "record")).
			fix("look first with --dry-run, then add --yes")
	}
	fmt.Fprintf(s.err, "Make %d keys due now, with %s? [y/N] ", keys, plural(records, "record"))
	return agreed(ctx, s, "nothing was changed")
}
