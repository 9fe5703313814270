package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// run executes a command line and gives the exit code.
func run(ctx context.Context, args []string, s streams) int {
	out := &faithful{Writer: s.out}
	s.out = out
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("not everything could be written to standard output: %w", out.err)
	}
	if err == nil {
		return exitOK
	}
	return complain(s, cmd, err)
}

// complain prints an error and what to do about it, and gives the exit code.
func complain(s streams, cmd *cobra.Command, err error) int {
	if !errors.Is(err, errReported) {
		fmt.Fprintln(s.err, "headrace: "+safe(s, err.Error()))
	}
	if hint := hintOf(err); hint != "" {
		fmt.Fprintln(s.err, indent("fix: "+hide(s, hint)))
	}
	if !errors.As(err, new(*usageError)) {
		return exitFailed
	}
	fmt.Fprintf(s.err, "  see '%s --help'\n", cmd.CommandPath())
	return exitUsage
}

func newRoot(s streams) *cobra.Command {
	root := group(&cobra.Command{
		Use:   "headrace",
		Short: "Migrate the database, look at dead letters and at what is parked, decide about them, send the outbox",
		Long: `headrace migrates the database of a Headrace consumer, shows and replays its dead letters, takes a record out of the
way that keeps its partition waiting, decides about what is parked, counts whether each record has its one outcome, and
sends what its handlers have published.

Results go to standard output, everything else to standard error.
Exit codes: 0 all went well, 1 something failed, 2 the command line is wrong.`,
		Example: `  export HEADRACE_BROKERS=kafka-1:9092,kafka-2:9092
  export DATABASE_URL=postgres://billing@db:5432/billing

  headrace migrate up
  headrace dlq ls --topic orders.dlq --since 2h
  headrace dlq show --topic orders.dlq 3/120
  headrace dlq replay --topic orders.dlq --reason exhausted --dry-run
  headrace bury --group billing --route charge-order --at orders/3/120
  headrace parked ls --route charge-order
  headrace audit --topic orders --group billing
  headrace outbox run`,
	})
	root.PersistentPreRunE = refuseValues
	root.SilenceErrors, root.SilenceUsage = true, true // complain prints them
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newMigrate(s), newDLQ(s), newBury(s), newParked(s), newAudit(s), newOutbox(s), newIdempotency(s), newVersion(s))
	return root
}

// group makes a command of one that only holds others. Cobra would print its help for a misspelt one and call that a
// success.
func group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.AddCommand(children...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, name string) error {
	hint := "run one of: " + strings.Join(names(cmd), ", ")
	if similar := cmd.SuggestionsFor(name); len(similar) > 0 {
		hint = "did you mean '" + cmd.CommandPath() + " " + similar[0] + "'?"
	}
	return usagef("unknown command %q for '%s'", name, cmd.CommandPath()).fix(hint)
}

func names(cmd *cobra.Command) []string {
	var list []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			list = append(list, c.Name())
		}
	}
	return list
}

// noArgs is for commands whose arguments are all flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q: '%s' takes flags only", args[0], cmd.CommandPath()).fix(asFlag(cmd, args[0]))
	}
	return nil
}
