package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
)

func newParked(s streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "parked",
		Short: "Look at records that wait to be tried again much later, and decide about them",
		Long: `A route that parks puts a record that has used up its attempts into its database, and tries it again minutes or hours
later; the records of its key queue behind it. 'ls' lists the keys that wait, 'show' shows a record with all that it has
failed of, 'retry' makes keys due now, 'dead' says that a record is dead. All four take the same filters, so list first.`,
		Example: `  headrace parked ls --route charge-order
  headrace parked show orders/3/120
  headrace parked retry --route charge-order --yes
  headrace parked dead orders/3/120 --why INC-4711`,
	}, newParkedList(s), newParkedShow(s), newParkedRetry(s), newParkedDead(s))
}

// parkedFlags say which parked records of which database.
type parkedFlags struct {
	dsn                                           dsnFlag
	groups, routes, keys, at, reasons, stateNames []string
	since, until                                  string
}

func (f *parkedFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false // the important ones first
	fs.StringSliceVarP(&f.groups, "group", "g", nil, "only records of these consumer `groups`")
	fs.StringSliceVar(&f.routes, "route", nil, "only records of these `routes`")
	fs.StringArrayVar(&f.keys, "key", nil, "only records with this `key` (may be repeated)")
	fs.StringArrayVar(&f.at, "at", nil, "only the record that was read at this `topic/partition/offset` (may be repeated)")
	fs.StringSliceVar(&f.reasons, "reason", nil, "only records whose last failure was of these `classes`: "+strings.Join(parkedReasons(), ", "))
	fs.StringSliceVar(&f.stateNames, "state", nil, "only records in these `states`: "+strings.Join(parkedStates(), ", "))
	fs.StringVar(&f.since, "since", "", "only records parked since then: an `age` (90m, 2h, 7d) or a time (2026-11-30T03:00:00Z)")
	fs.StringVar(&f.until, "until", "", "only records parked before then: an `age` or a time")
	for flag, values := range map[string][]string{"reason": parkedReasons(), "state": parkedStates()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// finish registers the flags that come last in the help.
func (f *parkedFlags) finish(cmd *cobra.Command) {
	f.dsn.register(cmd.Flags(), "the consumer's database")
}

// filter is what the flags say, and places, which are arguments.
func (f *parkedFlags) filter(places []string) (parking.Filter, error) {
	out := parking.Filter{Groups: f.groups, Routes: f.routes, Keys: f.keys}
	for _, place := range slices.Concat(f.at, places) {
		at, err := dlq.ParseCoordinates(place)
		if err != nil {
			return out, usagef("%q is no record: %w", place, err).fix("write topic/partition/offset, as ls shows it under RECORD, as in orders/3/120")
		}
		out.At = append(out.At, at)
	}
	for _, name := range f.reasons {
		if !slices.Contains(parkedReasons(), name) {
			return out, usagef("--reason %q is not known", name).fix("use some of: " + strings.Join(parkedReasons(), ", "))
		}
		out.Classes = append(out.Classes, name)
	}
	for _, name := range f.stateNames {
		if !slices.Contains(parkedStates(), name) {
			return out, usagef("--state %q is not known", name).fix("use some of: " + strings.Join(parkedStates(), ", "))
		}
		out.States = append(out.States, parking.State(name))
	}
	var err error
	now := time.Now()
	if out.Since, err = parseTime("--since", f.since, now); err != nil {
		return out, err
	}
	if out.Until, err = parseTime("--until", f.until, now); err != nil {
		return out, err
	}
	if !out.Until.IsZero() && !out.Since.Before(out.Until) {
		return out, usagef("--since %s is not before --until %s: nothing was parked in between", f.since, f.until).
			fix("let --since be the older one, as in --since 3h --until 2h")
	}
	return out, nil
}

// parkedReasons are the classes of failures that a round ends with.
func parkedReasons() []string {
	return []string{fault.ClassTransient.String(), fault.ClassAmbiguous.String(), fault.ClassPermanent.String(), fault.ClassUnavailable.String(), fault.ClassBusy.String()}
}

func parkedStates() []string {
	list := make([]string, len(parking.States))
	for i, state := range parking.States {
		list[i] = string(state)
	}
	return list
}

// parkedError adds what to do about a database without the tables.
func parkedError(err error) error {
	if errors.Is(err, migrations.ErrVersion) {
		return &failure{err: err, hint: "check --dsn or " + envDSN + ": it is to be the consumer's; 'headrace migrate up' makes the tables"}
	}
	return inboxError(err)
}

// routeOf is whose record it is.
func routeOf(w *parking.Waiting) string { return dlq.Escape([]byte(w.Group+"/"+w.Route), maxCell) }

// atOf is where it was read.
func atOf(w *parking.Waiting) string { return dlq.Escape([]byte(w.At().String()), maxCell) }

// keyOf is its key, "" for none.
func keyOf(w *parking.Waiting) string {
	if w.Record == nil {
		return ""
	}
	return dlq.Escape(w.Record.Key, maxCell)
}

// triesOf is how often it failed.
func triesOf(w *parking.Waiting) string {
	if w.State == parking.StateBehind {
		return ""
	}
	return numberCell(w.Round)
}

// failedOf is what it failed of last, or why it cannot be read.
func failedOf(w *parking.Waiting) string {
	if w.Err != nil {
		return "[" + dlq.Escape([]byte(w.Err.Error()), maxMessage) + "]"
	}
	last := w.Last()
	if last.Class == "" {
		return ""
	}
	return dlq.Preview(fmt.Appendf(nil, "%s: %s", last.Class, last.Message), maxMessage)
}
