package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/parking"
)

type parkedDeadFlags struct {
	parkedFlags

	why         string
	dryRun, yes bool
}

func newParkedDead(s streams) *cobra.Command {
	var f parkedDeadFlags
	cmd := &cobra.Command{
		Use:   "dead [topic/partition/offset]…",
		Short: "Say that parked records are dead",
		Long: `Says that records are dead for their route, reason manual: their handler is not run again. By filters it means the first
record of each key, by its place any.

It writes that into the inbox and makes the key due. The consumer, when it comes to the record, writes its dead letter with
all that its rounds ended with, and goes on with those behind it, or holds them, as the route's policy says. So the route's
consumer must run. A record that stands behind others is dead when its turn comes. If the command ends half way, run it
again: what is dead stays dead, and nothing is lost.

A record that was dealt with in the meantime is left as it is, and the exit code is 1. If its handler runs at this moment
that is waited for, five seconds at most. This cannot be taken back; but the dead letter can be replayed, like any other.`,
		Example: `  headrace parked dead orders/3/120 --dry-run
  headrace parked dead orders/3/120 --why INC-4711 --yes
  headrace parked dead --route charge-order --reason permanent --why INC-4711 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, args) },
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.why, "why", saidSo, "what the dead letter says, as its error's `text`")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "write nothing, list what would be dead")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	f.finish(cmd)
	return cmd
}

func (f *parkedDeadFlags) run(ctx context.Context, s streams, args []string) error {
	filter, err := f.filter(args)
	if err != nil {
		return err
	}
	if !f.yes && !f.dryRun && !s.inTerminal {
		return usagef("dead wants a yes, and there is no terminal to ask on").fix("look first with --dry-run, then add --yes")
	}
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	n, err := f.count(ctx, s, pool, filter)
	switch {
	case err != nil:
		return err
	case f.dryRun:
		fmt.Fprintf(s.out, "would be dead: %s; --dry-run wrote nothing\n", plural(n, "record"))
		return nil
	case !f.yes:
		fmt.Fprintf(s.err, "Say that %s dead? Only a replay of the letter can undo it. [y/N] ", areRecords(n))
		if err := agreed(ctx, s, "nothing was changed"); err != nil {
			return err
		}
	}
	return f.bury(ctx, s, pool, filter)
}

func areRecords(n int64) string {
	if n == 1 {
		return "1 record is"
	}
	return fmt.Sprintf("%d records are", n)
}

// each gives the records that are meant.
func (f *parkedDeadFlags) each(ctx context.Context, pool *pgxpool.Pool, filter parking.Filter, each func(*parking.Waiting) error) error {
	list := parking.ListHeads
	if len(filter.At) > 0 {
		list = parking.ListRecords
	}
	return parkedError(list(ctx, pool, filter, 0, each))
}

// count lists in a dry run what would be dead, and before a question when it is few.
func (f *parkedDeadFlags) count(ctx context.Context, s streams, pool *pgxpool.Pool, filter parking.Filter) (n int64, err error) {
	err = f.each(ctx, pool, filter, func(w *parking.Waiting) error {
		n++
		if f.dryRun || n <= fewPlaces && !f.yes {
			fmt.Fprintf(s.out, "dead  %s  of %s, %s\n", atOf(w), routeOf(w), w.State)
		}
		return nil
	})
	if err == nil && n == 0 {
		err = errNothingParked(len(filter.At))
	}
	return n, err
}

// burial is what has come of a command.
type burials struct {
	dead, failed int64
	of           map[[2]string]*dedup.Consumer
}

func (f *parkedDeadFlags) bury(ctx context.Context, s streams, pool *pgxpool.Pool, filter parking.Filter) error {
	b := &burials{of: map[[2]string]*dedup.Consumer{}}
	err := f.each(ctx, pool, filter, func(w *parking.Waiting) error {
		err := f.one(ctx, pool, b, w)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			b.failed++
			fmt.Fprintf(s.err, "failed  %s: %s\n", atOf(w), safe(s, err.Error()))
		default:
			b.dead++
		}
		return nil
	})
	fmt.Fprintf(s.out, "dead: %s; the consumer writes the letters when it next comes to them\n", plural(b.dead, "record"))
	switch {
	case err != nil:
		return &failure{err: err, hint: "running the command again is safe: what is dead stays dead"}
	case b.failed > 0:
		return &failure{err: errReported, hint: "running the command again is safe: what is dead stays dead"}
	}
	return nil
}

// one says that a record is dead, and then makes its line due: a process that ends in between leaves a row that the
// consumer finds when the line is due by itself.
func (f *parkedDeadFlags) one(ctx context.Context, pool *pgxpool.Pool, b *burials, w *parking.Waiting) error {
	if w.Err != nil {
		return w.Err
	}
	to := b.of[[2]string{w.Group, w.Route}]
	if to == nil {
		var err error
		if to, err = dedup.FindConsumer(ctx, pool, w.Group, w.Route); err != nil {
			return err
		}
		b.of[[2]string{w.Group, w.Route}] = to
	}
	said, err := to.Bury(ctx, w.Record, dedup.Grave{Reason: string(dlq.Manual), Err: whyOf(f.why)})
	switch {
	case err != nil && new(fault.Classifier).Classify(ctx, err).Class == fault.ClassBusy:
		return errors.New("the route is handling it at this moment, nothing was changed")
	case err != nil:
		return fmt.Errorf("whether it was written is not known: %w", err)
	case said == dedup.Own || said == dedup.OwnSkipped:
		return errors.New("the route has dealt with it, nothing was changed: its row leaves when the consumer comes to it")
	case said != dedup.Buried && said != dedup.DeadOwn:
		return fmt.Errorf("another record with its id was dealt with (%s), nothing was changed", said)
	}
	if w.State == parking.StateBehind {
		return nil
	}
	_, err = parking.MakeDue(ctx, pool, []parking.LineID{w.Line})
	return err
}
